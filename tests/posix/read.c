/* aio_read. */
#include "check.h"

#define BLOCK 4096

CASE(aio_read, reads_nbytes_at_the_offset_into_the_buffer, CONFORMING)
{
	int fd = new_file("file", 16 * BLOCK, 0);
	char buffer[2 * BLOCK];
	struct aiocb block = transfer(fd, buffer, sizeof buffer, 5 * BLOCK);

	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), sizeof buffer);
	CHECK(buffer[0] == 5 && buffer[BLOCK - 1] == 5 && buffer[BLOCK] == 6);
}

CASE(aio_read, returns_when_the_request_has_been_queued, CONFORMING)
{
	int ends[2];
	char byte = 0;

	EQUAL(pipe(ends), 0);
	struct aiocb block = transfer(ends[0], &byte, 1, 0);
	EQUAL(aio_read(&block), 0);
	EQUAL(aio_error(&block), EINPROGRESS);
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(value_at_end(&block), 1);
	EQUAL(byte, 'x');
}

CASE(aio_read, ignores_the_opcode, CONFORMING)
{
	int fd = new_file("file", BLOCK, 0);
	char buffer[BLOCK];
	struct aiocb block = transfer(fd, buffer, sizeof buffer, 0);

	for (int opcode = -1; opcode < 4; opcode++) {
		block.aio_lio_opcode = opcode;
		EQUAL(aio_read(&block), 0);
		EQUAL(value_at_end(&block), BLOCK);
	}
}

CASE(aio_read, is_as_read_at_the_end_of_the_file, CONFORMING)
{
	int fd = new_file("file", BLOCK + 100, 0);
	char buffer[2 * BLOCK];
	struct aiocb last = transfer(fd, buffer, sizeof buffer, BLOCK);
	struct aiocb end = transfer(fd, buffer, sizeof buffer, BLOCK + 100);
	struct aiocb far = transfer(fd, buffer, sizeof buffer, 1L << 30);

	EQUAL(aio_read(&last), 0);
	EQUAL(value_at_end(&last), 100);
	EQUAL(aio_read(&end), 0);
	EQUAL(value_at_end(&end), 0);
	EQUAL(aio_read(&far), 0);
	EQUAL(value_at_end(&far), 0);
}

CASE(aio_read, of_nothing_is_nothing, CONFORMING)
{
	struct aiocb block = transfer(new_file("file", BLOCK, 0), NULL, 0, 0);

	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), 0);
}

CASE(aio_read, ebadf_is_no_descriptor_or_not_open_for_reading, CONFORMING)
{
	char byte;
	struct aiocb none = transfer(1000, &byte, 1, 0), negative = transfer(-1, &byte, 1, 0);

	close(new_file("file", BLOCK, 0));
	struct aiocb writes = transfer(open(path("file"), O_WRONLY), &byte, 1, 0);
	refused(aio_read(&none), &none, EBADF);
	refused(aio_read(&negative), &negative, EBADF);
	refused(aio_read(&writes), &writes, EBADF);
}

CASE(aio_read, einval_is_an_invalid_offset_or_priority, CONFORMING)
{
	char byte;
	int fd = new_file("file", BLOCK, 0);
	struct aiocb offset = transfer(fd, &byte, 1, -1);
	struct aiocb high = transfer(fd, &byte, 1, 0), low = high;

	high.aio_reqprio = -1;
	low.aio_reqprio = (int)sysconf(_SC_AIO_PRIO_DELTA_MAX) + 1;
	refused(aio_read(&offset), &offset, EINVAL);
	refused(aio_read(&high), &high, EINVAL);
	refused(aio_read(&low), &low, EINVAL);
}

/* The standard says EINVAL; pread(2), and so glibc, returns EFAULT. */
CASE(aio_read, efault_is_a_length_beyond_all_memory, CONFORMING)
{
	char byte;
	int fd = new_file("file", BLOCK, 0);
	struct aiocb negative = transfer(fd, &byte, (size_t)-1, 0);
	struct aiocb most = transfer(fd, &byte, (size_t)1 << 62, 0);

	refused(aio_read(&negative), &negative, EFAULT);
	refused(aio_read(&most), &most, EFAULT);
}

CASE(aio_read, takes_every_allowed_priority, CONFORMING)
{
	char buffer[BLOCK];
	struct aiocb block = transfer(new_file("file", BLOCK, 0), buffer, BLOCK, 0);

	for (int lower = 0; lower <= sysconf(_SC_AIO_PRIO_DELTA_MAX); lower++) {
		block.aio_reqprio = lower;
		EQUAL(aio_read(&block), 0);
		EQUAL(value_at_end(&block), BLOCK);
	}
}

CASE(aio_read, errors_are_those_of_read, CONFORMING)
{
	int ends[2];
	char byte;

	EQUAL(pipe2(ends, O_NONBLOCK), 0);
	struct aiocb directory = transfer(open(path("."), O_RDONLY), &byte, 1, 0);
	struct aiocb empty = transfer(ends[0], &byte, 1, 0);
	EQUAL(aio_read(&directory), 0);
	EQUAL(error_at_end(&directory), EISDIR);
	EQUAL(aio_read(&empty), 0);
	EQUAL(error_at_end(&empty), EAGAIN);
	struct aiocb fault = transfer(new_file("file", BLOCK, 0), (void *)8, BLOCK, 0);
	EQUAL(aio_read(&fault), 0);
	EQUAL(error_at_end(&fault), EFAULT);
}

CASE(aio_read, of_a_stream_gives_what_is_there, CONFORMING)
{
	int ends[2];
	char buffer[100];

	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	struct aiocb block = transfer(ends[0], buffer, sizeof buffer, 0);
	EQUAL(write(ends[1], "seven b", 7), 7);
	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), 7);
	close(ends[1]);
	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), 0);
}

static void read_many(int flags)
{
	enum { MANY = 256 };
	static struct aiocb blocks[MANY];
	int fd = new_file("file", MANY * BLOCK, flags);
	char *buffer = aligned_alloc(BLOCK, MANY * BLOCK);

	CHECK(buffer);
	for (int i = 0; i < MANY; i++) {
		int at = i * 7 % MANY;

		blocks[i] = transfer(fd, buffer + i * BLOCK, BLOCK, (off_t)at * BLOCK);
		EQUAL(aio_read(&blocks[i]), 0);
	}
	for (int i = 0; i < MANY; i++) {
		EQUAL(value_at_end(&blocks[i]), BLOCK);
		EQUAL((unsigned char)buffer[i * BLOCK], i * 7 % MANY);
		EQUAL((unsigned char)buffer[i * BLOCK + BLOCK - 1], i * 7 % MANY);
	}
}

CASE(aio_read, many_of_one_file_each_get_their_own, CONFORMING) { read_many(0); }
CASE(aio_read, many_direct_ones_each_get_their_own, CONFORMING) { read_many(O_DIRECT); }

CASE(aio_read, does_not_keep_a_write_on_the_same_descriptor_waiting, NOWAIT)
{
	int ends[2];
	char byte;

	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	struct aiocb in = transfer(ends[0], &byte, 1, 0), out = transfer(ends[0], "x", 1, 0);
	EQUAL(aio_read(&in), 0);
	EQUAL(aio_write(&out), 0);
	EQUAL(value_at_end(&out), 1);
	EQUAL(aio_error(&in), EINPROGRESS);
	EQUAL(write(ends[1], "y", 1), 1);
	EQUAL(value_at_end(&in), 1);
}
