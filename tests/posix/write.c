/* aio_write, aio_fsync. */
#include "check.h"

#include <sys/resource.h>

#define BLOCK 4096

static bool has(int fd, off_t offset, size_t len, char byte)
{
	char buffer[BLOCK];

	while (len > 0) {
		ssize_t got = pread(fd, buffer, len < BLOCK ? len : BLOCK, offset);

		CHECK(got > 0);
		for (ssize_t i = 0; i < got; i++)
			if (buffer[i] != byte)
				return false;
		len -= (size_t)got;
		offset += got;
	}
	return true;
}

CASE(aio_write, writes_nbytes_at_the_offset_from_the_buffer, CONFORMING)
{
	int fd = new_file("file", 4 * BLOCK, 0);
	char buffer[BLOCK];
	struct aiocb block = transfer(fd, memset(buffer, 'w', BLOCK), BLOCK, BLOCK + 10);

	EQUAL(aio_write(&block), 0);
	EQUAL(value_at_end(&block), BLOCK);
	CHECK(has(fd, BLOCK + 10, BLOCK, 'w') && has(fd, BLOCK, 10, 1) && has(fd, 0, BLOCK, 0));
}

CASE(aio_write, takes_every_allowed_priority, CONFORMING)
{
	int fd = new_file("file", BLOCK, 0);
	char buffer[BLOCK];
	struct aiocb block = transfer(fd, buffer, BLOCK, 0);

	for (int lower = 0; lower <= sysconf(_SC_AIO_PRIO_DELTA_MAX); lower++) {
		memset(buffer, 'a' + lower, BLOCK);
		block.aio_reqprio = lower;
		EQUAL(aio_write(&block), 0);
		EQUAL(value_at_end(&block), BLOCK);
		CHECK(has(fd, 0, BLOCK, (char)('a' + lower)));
	}
}

CASE(aio_write, extends_the_file, CONFORMING)
{
	int fd = new_file("file", 0, 0);
	struct aiocb block = transfer(fd, "end", 3, 3 * BLOCK);

	EQUAL(aio_write(&block), 0);
	EQUAL(value_at_end(&block), 3);
	EQUAL(lseek(fd, 0, SEEK_END), 3 * BLOCK + 3);
	CHECK(has(fd, 0, 3 * BLOCK, 0));
}

CASE(aio_write, with_o_append_appends_in_the_order_of_the_calls, CONFORMING)
{
	enum { MANY = 200 };
	static struct aiocb blocks[MANY];
	static char lines[MANY][100];
	int fd = new_file("file", 10, O_APPEND);

	for (int i = 0; i < MANY; i++) {
		/* With O_APPEND the offset has no effect. */
		blocks[i] = transfer(fd, memset(lines[i], i, 100), 100, 0);
		EQUAL(aio_write(&blocks[i]), 0);
	}
	for (int i = 0; i < MANY; i++)
		EQUAL(value_at_end(&blocks[i]), 100);
	for (int i = 0; i < MANY; i++)
		CHECK(has(fd, 10 + i * 100, 100, (char)i));
}

CASE(aio_write, ignores_the_opcode, CONFORMING)
{
	struct aiocb block = transfer(new_file("file", 0, 0), "x", 1, 0);

	for (int opcode = -1; opcode < 4; opcode++) {
		block.aio_lio_opcode = opcode;
		EQUAL(aio_write(&block), 0);
		EQUAL(value_at_end(&block), 1);
	}
}

CASE(aio_write, ebadf_is_no_descriptor_or_not_open_for_writing, CONFORMING)
{
	struct aiocb none = transfer(1000, "x", 1, 0);

	close(new_file("file", BLOCK, 0));
	struct aiocb reads = transfer(open(path("file"), O_RDONLY), "x", 1, 0);
	refused(aio_write(&none), &none, EBADF);
	refused(aio_write(&reads), &reads, EBADF);
}

CASE(aio_write, einval_is_an_invalid_offset_or_priority, CONFORMING)
{
	int fd = new_file("file", BLOCK, 0);
	struct aiocb offset = transfer(fd, "x", 1, -1);
	struct aiocb priority = transfer(fd, "x", 1, 0);

	priority.aio_reqprio = -1;
	refused(aio_write(&offset), &offset, EINVAL);
	refused(aio_write(&priority), &priority, EINVAL);
}

CASE(aio_write, errors_are_those_of_write, CONFORMING)
{
	struct rlimit limit = { .rlim_cur = 2 * BLOCK, .rlim_max = RLIM_INFINITY };
	int fd = new_file("file", BLOCK, 0), ends[2];
	char buffer[2 * BLOCK] = { 0 };

	/* The library must not let SIGPIPE or SIGXFSZ reach the program: they would end it. */
	struct aiocb full = transfer(open("/dev/full", O_WRONLY), "x", 1, 0);
	EQUAL(aio_write(&full), 0);
	EQUAL(error_at_end(&full), ENOSPC);
	EQUAL(pipe(ends), 0);
	close(ends[0]);
	struct aiocb nobody = transfer(ends[1], "x", 1, 0);
	EQUAL(aio_write(&nobody), 0);
	EQUAL(error_at_end(&nobody), EPIPE);
	EQUAL(aio_return(&nobody), -1);
	EQUAL(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = 2 * BLOCK;
	EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
	struct aiocb crossing = transfer(fd, buffer, sizeof buffer, BLOCK);
	struct aiocb behind = transfer(fd, buffer, BLOCK, 2 * BLOCK);
	EQUAL(aio_write(&crossing), 0);
	EQUAL(value_at_end(&crossing), BLOCK);
	EQUAL(aio_write(&behind), 0);
	EQUAL(error_at_end(&behind), EFBIG);
}

CASE(aio_write, then_a_read_of_the_same_bytes_sees_them, NOWAIT)
{
	enum { ROUNDS = 200 };
	int fd = new_file("file", BLOCK, 0);
	char out[BLOCK], in[BLOCK];

	for (int i = 0; i < ROUNDS; i++) {
		struct aiocb write = transfer(fd, memset(out, i, BLOCK), BLOCK, 0);
		struct aiocb read = transfer(fd, in, BLOCK, 0);

		EQUAL(aio_write(&write), 0);
		EQUAL(aio_read(&read), 0);
		EQUAL(value_at_end(&read), BLOCK);
		CHECK(memcmp(in, out, BLOCK) == 0);
		EQUAL(value_at_end(&write), BLOCK);
	}
}

static void sync_after_writes(int flags, int operation)
{
	enum { MANY = 64 };
	static struct aiocb writes[MANY];
	int fd = new_file("file", MANY * BLOCK, flags);
	char *buffer = aligned_alloc(BLOCK, BLOCK);

	CHECK(buffer);
	memset(buffer, 's', BLOCK);
	for (int round = 0; round < 10; round++) {
		struct aiocb sync = transfer(fd, (void *)1, 1, -1);

		for (int i = 0; i < MANY; i++) {
			writes[i] = transfer(fd, buffer, BLOCK, (off_t)i * BLOCK);
			EQUAL(aio_write(&writes[i]), 0);
		}
		EQUAL(aio_fsync(operation, &sync), 0);
		EQUAL(value_at_end(&sync), 0);
		for (int i = 0; i < MANY; i++) {
			EQUAL(aio_error(&writes[i]), 0);
			EQUAL(aio_return(&writes[i]), BLOCK);
		}
	}
}

CASE(aio_fsync, o_sync_waits_for_what_was_queued_before, CONFORMING)
{
	sync_after_writes(0, O_SYNC);
}
CASE(aio_fsync, o_dsync_waits_for_what_was_queued_before, CONFORMING)
{
	sync_after_writes(0, O_DSYNC);
}
CASE(aio_fsync, waits_for_direct_writes_too, CONFORMING) { sync_after_writes(O_DIRECT, O_SYNC); }

CASE(aio_fsync, uses_only_descriptor_and_sigevent, CONFORMING)
{
	struct aiocb block = transfer(new_file("file", BLOCK, 0), (void *)1, 12345, -1);

	block.aio_lio_opcode = 77;
	EQUAL(aio_fsync(O_SYNC, &block), 0);
	EQUAL(value_at_end(&block), 0);
}

CASE(aio_fsync, takes_any_priority, NOWAIT)
{
	struct aiocb block = transfer(new_file("file", BLOCK, 0), NULL, 0, 0);
	int any[] = { -1, INT_MIN, INT_MAX };

	for (int i = 0; i < 3; i++) {
		block.aio_reqprio = any[i];
		EQUAL(aio_fsync(O_SYNC, &block), 0);
		EQUAL(value_at_end(&block), 0);
	}
}

CASE(aio_fsync, is_announced, CONFORMING)
{
	struct aiocb block = transfer(new_file("file", BLOCK, 0), NULL, 0, 0);

	block_signal(SIGRTMIN);
	by_signal(&block, SIGRTMIN, 5);
	EQUAL(aio_fsync(O_DSYNC, &block), 0);
	EQUAL(take_signal(SIGRTMIN).si_value.sival_int, 5);
	EQUAL(aio_error(&block), 0);
}

CASE(aio_fsync, einval_is_another_operation, CONFORMING)
{
	struct aiocb block = transfer(new_file("file", BLOCK, 0), NULL, 0, 0);

	FAILS(aio_fsync(0, &block), EINVAL);
	FAILS(aio_fsync(O_SYNC | O_APPEND, &block), EINVAL);
}

CASE(aio_fsync, ebadf_is_no_descriptor, CONFORMING)
{
	struct aiocb none = transfer(-1, NULL, 0, 0), closed = transfer(1000, NULL, 0, 0);

	FAILS(aio_fsync(O_SYNC, &none), EBADF);
	FAILS(aio_fsync(O_DSYNC, &closed), EBADF);
}

CASE(aio_fsync, of_what_cannot_be_synced_is_einval, CONFORMING)
{
	int ends[2];

	EQUAL(pipe(ends), 0);
	struct aiocb block = transfer(ends[1], NULL, 0, 0);
	refused(aio_fsync(O_SYNC, &block), &block, EINVAL);
}
