/* EAGAIN: as many requests as there may be are in flight. */
#include "check.h"

#include <sys/resource.h>

enum { PIPES = 256 };
static struct aiocb *blocks;
static long most;
static int ends[PIPES][2];
static char byte;

static struct aiocb one_byte(int i) { return transfer(ends[i % PIPES][0], &byte, 1, 0); }

static void fill(void)
{
	most = sysconf(_SC_AIO_MAX);
	blocks = calloc((size_t)most, sizeof *blocks);
	CHECK(blocks);
	for (int i = 0; i < PIPES; i++)
		EQUAL(pipe(ends[i]), 0);
	for (long i = 0; i < most; i++) {
		blocks[i] = one_byte((int)i);
		EQUAL(aio_read(&blocks[i]), 0);
	}
}

/* All read the end of the file. */
static void drain(void)
{
	for (int i = 0; i < PIPES; i++)
		close(ends[i][1]);
	for (long i = 0; i < most; i++)
		EQUAL(value_at_end(&blocks[i]), 0);
}

CASE(aio_read, eagain_is_too_many_requests, NOWAIT)
{
	fill();
	struct aiocb more = one_byte(0);
	FAILS(aio_read(&more), EAGAIN);
	EQUAL(aio_error(&more), EAGAIN);
	drain();
	EQUAL(aio_read(&more), 0);
	EQUAL(value_at_end(&more), 0);
}

CASE(aio_write, eagain_is_too_many_requests, NOWAIT)
{
	struct aiocb more = transfer(new_file("file", 0, 0), "x", 1, 0);

	fill();
	FAILS(aio_write(&more), EAGAIN);
	EQUAL(aio_error(&more), EAGAIN);
	drain();
	EQUAL(aio_write(&more), 0);
	EQUAL(value_at_end(&more), 1);
}

CASE(aio_fsync, eagain_is_too_many_requests, NOWAIT)
{
	struct aiocb more = transfer(new_file("file", 1, 0), NULL, 0, 0);

	fill();
	FAILS(aio_fsync(O_SYNC, &more), EAGAIN);
	EQUAL(aio_error(&more), EAGAIN);
	drain();
	EQUAL(aio_fsync(O_SYNC, &more), 0);
	EQUAL(value_at_end(&more), 0);
}

CASE(lio_listio, eagain_is_too_many_requests, NOWAIT)
{
	int fd = new_file("file", 0, 0);
	struct aiocb more[2] = { transfer(fd, "a", 1, 0), transfer(fd, "b", 1, 1) };
	struct aiocb *list[2] = { &more[0], &more[1] };

	more[0].aio_lio_opcode = more[1].aio_lio_opcode = LIO_WRITE;
	fill();
	FAILS(lio_listio(LIO_NOWAIT, list, 2, NULL), EAGAIN);
	EQUAL(aio_error(&more[0]), EAGAIN);
	EQUAL(aio_error(&more[1]), EAGAIN);
	drain();
	EQUAL(lio_listio(LIO_WAIT, list, 2, NULL), 0);
	EQUAL(value_at_end(&more[0]), 1);
	EQUAL(value_at_end(&more[1]), 1);
}

/* EAGAIN: too few descriptors, for the library to begin; glibc needs none. */
CASE(aio_read, works_when_there_are_descriptors_again, CONFORMING)
{
	struct aiocb block = transfer(new_file("file", 4096, 0), &byte, 1, 0);
	struct rlimit before, lowered = { .rlim_cur = 0 };

	EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
	lowered.rlim_max = before.rlim_max;
	EQUAL(setrlimit(RLIMIT_NOFILE, &lowered), 0);
	for (int i = 0; i < 3; i++) {
		if (aio_read(&block) == 0)
			EQUAL(value_at_end(&block), 1);
		else
			EQUAL(errno, EAGAIN);
	}
	EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), 1);
}
