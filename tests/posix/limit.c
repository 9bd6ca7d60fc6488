/* EAGAIN: the largest possible number of requests is in flight, or descriptors or memory are
 * missing. */
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

/* Closes the pipes' write ends, so that all reads see the end of file. */
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

/* The first request of the list gets a slot and waits for its byte; the second gets no slot. The
 * notification of the list arrives when the first request ends. */
CASE(lio_listio, tells_when_those_that_had_room_are_over, NOWAIT)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	int own[2];
	EQUAL(pipe(own), 0);
	struct aiocb more[2] = { transfer(own[0], &byte, 1, 0),
				 transfer(new_file("file", 0, 0), "b", 1, 0) };
	struct aiocb *list[2] = { &more[0], &more[1] };

	more[0].aio_lio_opcode = LIO_READ;
	more[1].aio_lio_opcode = LIO_WRITE;
	block_signal(SIGRTMIN);
	fill();
	EQUAL(write(ends[0][1], "x", 1), 1);
	EQUAL(value_at_end(&blocks[0]), 1);
	/* A slot is free a moment after its request has ended; until then neither request of the
	 * list gets one. */
	for (;;) {
		FAILS(lio_listio(LIO_NOWAIT, list, 2, &event), EAGAIN);
		EQUAL(aio_error(&more[1]), EAGAIN);
		if (aio_error(&more[0]) == EINPROGRESS)
			break;
		EQUAL(aio_error(&more[0]), EAGAIN);
		take_signal(SIGRTMIN);
	}
	CHECK(!is_pending(SIGRTMIN));
	EQUAL(write(own[1], "x", 1), 1);
	take_signal(SIGRTMIN);
	EQUAL(value_at_end(&more[0]), 1);
	blocks[0] = one_byte(0);
	while (aio_read(&blocks[0]) != 0)
		EQUAL(errno, EAGAIN);
	drain();
}

/* Limits the memory to what the process has now, with too little room for the stack of a thread. */
static void limit_memory(const struct rlimit *before)
{
	struct rlimit lowered = *before;
	FILE *status = fopen("/proc/self/statm", "r");
	unsigned long pages;

	CHECK(status && fscanf(status, "%lu", &pages) == 1);
	fclose(status);
	lowered.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 20);
	EQUAL(setrlimit(RLIMIT_AS, &lowered), 0);
}

static void told(union sigval value) { (void)value; }

/* Blocks that were used before must not keep the old outcome, which looks like success. */
CASE(lio_listio, eagain_is_no_thread_for_a_notification, NOWAIT)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = told };
	int fd = new_file("file", 0, 0);
	struct aiocb used[2] = { transfer(fd, "a", 1, 0), transfer(fd, "b", 1, 1) };
	struct aiocb *list[2] = { &used[0], &used[1] };
	struct rlimit before;

	used[0].aio_lio_opcode = used[1].aio_lio_opcode = LIO_WRITE;
	EQUAL(getrlimit(RLIMIT_AS, &before), 0);
	for (int waits = 0; waits < 2; waits++) {
		EQUAL(lio_listio(LIO_WAIT, list, 2, NULL), 0);
		limit_memory(&before);
		if (waits) {
			by_thread(&used[1], told, NULL);
			FAILS(lio_listio(LIO_WAIT, list, 2, NULL), EAGAIN);
		} else {
			FAILS(lio_listio(LIO_NOWAIT, list, 2, &event), EAGAIN);
		}
		for (int i = 0; i < 2; i++) {
			EQUAL(aio_error(&used[i]), EAGAIN);
			EQUAL(aio_return(&used[i]), -1);
		}
		EQUAL(setrlimit(RLIMIT_AS, &before), 0);
	}
	EQUAL(lio_listio(LIO_WAIT, list, 2, NULL), 0);
	EQUAL(value_at_end(&used[1]), 1);
}

CASE(aio_write, eagain_is_no_thread_for_a_notification, NOWAIT)
{
	struct aiocb used = transfer(new_file("file", 0, 0), "a", 1, 0);
	struct rlimit before;

	EQUAL(aio_write(&used), 0);
	EQUAL(value_at_end(&used), 1);
	by_thread(&used, told, NULL);
	EQUAL(getrlimit(RLIMIT_AS, &before), 0);
	limit_memory(&before);
	FAILS(aio_write(&used), EAGAIN);
	EQUAL(aio_error(&used), EAGAIN);
	EQUAL(setrlimit(RLIMIT_AS, &before), 0);
	EQUAL(aio_write(&used), 0);
	EQUAL(value_at_end(&used), 1);
}

/* The library starts at its first call, which fails with EAGAIN if there are too few descriptors;
 * glibc needs none. */
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
