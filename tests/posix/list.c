/* lio_listio. */
#include "check.h"

#define BLOCK 4096
#define MANY 16

static struct aiocb blocks[MANY];
static struct aiocb *list[MANY + 2];
static char buffer[MANY][BLOCK];

/* Fills `list`: requests with odd numbers write their blocks, the others read their blocks. A null
 * pointer and a no-operation come last. */
static int mixed_list(void)
{
	static struct aiocb nothing;
	int fd = new_file("file", MANY * BLOCK, 0);

	for (int i = 0; i < MANY; i++) {
		bool writes = i % 2;

		memset(buffer[i], writes ? 'w' : 0, BLOCK);
		blocks[i] = transfer(fd, buffer[i], BLOCK, (off_t)i * BLOCK);
		blocks[i].aio_lio_opcode = writes ? LIO_WRITE : LIO_READ;
		list[i] = &blocks[i];
	}
	memset(&nothing, 0xff, sizeof nothing);
	nothing.aio_lio_opcode = LIO_NOP;
	list[MANY] = NULL;
	list[MANY + 1] = &nothing;
	return fd;
}

static void check_all(int fd)
{
	for (int i = 0; i < MANY; i++) {
		char seen[BLOCK];

		EQUAL(aio_error(&blocks[i]), 0);
		EQUAL(aio_return(&blocks[i]), BLOCK);
		EQUAL(pread(fd, seen, BLOCK, (off_t)i * BLOCK), BLOCK);
		EQUAL(seen[7], i % 2 ? 'w' : i);
		EQUAL(buffer[i][7], i % 2 ? 'w' : i);
	}
}

CASE(lio_listio, with_lio_wait_returns_when_all_are_over, CONFORMING)
{
	int fd = mixed_list();

	EQUAL(lio_listio(LIO_WAIT, list, MANY + 2, NULL), 0);
	check_all(fd);
}

CASE(lio_listio, with_lio_wait_ignores_the_sigevent, CONFORMING)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };

	block_signal(SIGRTMIN);
	mixed_list();
	EQUAL(lio_listio(LIO_WAIT, list, MANY, &event), 0);
	CHECK(!is_pending(SIGRTMIN));
}

CASE(lio_listio, with_lio_nowait_returns_when_all_are_queued, CONFORMING)
{
	int ends[2];
	char byte;

	EQUAL(pipe(ends), 0);
	struct aiocb block = transfer(ends[0], &byte, 1, 0);
	struct aiocb *one[] = { &block };
	block.aio_lio_opcode = LIO_READ;
	EQUAL(lio_listio(LIO_NOWAIT, one, 1, NULL), 0);
	EQUAL(aio_error(&block), EINPROGRESS);
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(value_at_end(&block), 1);
}

CASE(lio_listio, with_lio_nowait_signals_when_all_are_over, CONFORMING)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };

	event.sigev_value.sival_int = 77;
	block_signal(SIGRTMIN);
	int fd = mixed_list();
	EQUAL(lio_listio(LIO_NOWAIT, list, MANY + 2, &event), 0);
	siginfo_t info = take_signal(SIGRTMIN);
	EQUAL(info.si_code, SI_ASYNCIO);
	EQUAL(info.si_value.sival_int, 77);
	check_all(fd);
	CHECK(!is_pending(SIGRTMIN));
}

CASE(lio_listio, the_signal_waits_for_the_last, CONFORMING)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	int ends[2];
	char byte;

	EQUAL(pipe(ends), 0);
	block_signal(SIGRTMIN);
	mixed_list();
	blocks[3] = transfer(ends[0], &byte, 1, 0);
	EQUAL(lio_listio(LIO_NOWAIT, list, MANY, &event), 0);
	for (int i = 0; i < MANY; i++)
		if (i != 3)
			EQUAL(value_at_end(&blocks[i]), BLOCK);
	EQUAL(aio_error(&blocks[3]), EINPROGRESS);
	CHECK(!is_pending(SIGRTMIN));
	EQUAL(write(ends[1], "x", 1), 1);
	take_signal(SIGRTMIN);
	EQUAL(aio_error(&blocks[3]), 0);
}

CASE(lio_listio, each_request_has_its_own_notice_too, CONFORMING)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	unsigned seen = 0;

	block_signal(SIGRTMIN);
	block_signal(SIGRTMIN + 1);
	mixed_list();
	for (int i = 0; i < MANY; i++)
		by_signal(&blocks[i], SIGRTMIN + 1, i);
	EQUAL(lio_listio(LIO_NOWAIT, list, MANY, &event), 0);
	for (int i = 0; i < MANY; i++)
		seen |= 1u << take_signal(SIGRTMIN + 1).si_value.sival_int;
	EQUAL(seen, (1u << MANY) - 1);
	take_signal(SIGRTMIN);
}

static void mark(union sigval value)
{
	__atomic_store_n((int *)value.sival_ptr, 1, __ATOMIC_RELEASE);
}

CASE(lio_listio, with_lio_nowait_calls_the_function_when_all_are_over, CONFORMING)
{
	static int called;
	struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = mark };

	event.sigev_value.sival_ptr = &called;
	int fd = mixed_list();
	EQUAL(lio_listio(LIO_NOWAIT, list, MANY, &event), 0);
	while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE))
		sched_yield();
	check_all(fd);
}

CASE(lio_listio, of_nothing_is_over_at_once, CONFORMING)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };

	block_signal(SIGRTMIN);
	mixed_list();
	EQUAL(lio_listio(LIO_WAIT, &list[MANY], 2, NULL), 0);
	EQUAL(lio_listio(LIO_NOWAIT, &list[MANY], 2, &event), 0);
	take_signal(SIGRTMIN);
}

/* A request of 0 bytes among others ends and transfers nothing, and the others are not moved. */
CASE(lio_listio, with_requests_of_no_bytes_among_others, CONFORMING)
{
	int fd = mixed_list();

	for (int i = 1; i < MANY; i += 3)
		blocks[i].aio_nbytes = 0;
	blocks[7].aio_offset = 1L << 30;
	EQUAL(lio_listio(LIO_WAIT, list, MANY, NULL), 0);
	for (int i = 0; i < MANY; i++) {
		char seen;
		int nothing = i % 3 == 1;

		EQUAL(aio_error(&blocks[i]), 0);
		EQUAL(aio_return(&blocks[i]), nothing ? 0 : BLOCK);
		EQUAL(pread(fd, &seen, 1, (off_t)i * BLOCK), 1);
		EQUAL(seen, i % 2 && !nothing ? 'w' : i);
		EQUAL(buffer[i][0], i % 2 ? 'w' : nothing ? 0 : i);
	}
	EQUAL(lseek(fd, 0, SEEK_END), MANY * BLOCK);
}

/* The list has as many requests as a vector may have segments (IOV_MAX). The standard's minimum of
 * AIO_LISTIO_MAX is smaller. */
CASE(lio_listio, of_a_thousand_and_twenty_four_requests, CONFORMING)
{
	enum { COUNT = 1024 };
	static struct aiocb many[COUNT];
	static struct aiocb *all[COUNT];
	static unsigned char bytes[COUNT];
	int fd = new_file("file", 16 * BLOCK, 0);

	for (int i = 0; i < COUNT; i++) {
		many[i] = transfer(fd, &bytes[i], i % 5 != 0, (off_t)i * 64);
		many[i].aio_lio_opcode = LIO_READ;
		all[i] = &many[i];
	}
	EQUAL(lio_listio(LIO_WAIT, all, COUNT, NULL), 0);
	for (int i = 0; i < COUNT; i++) {
		EQUAL(aio_return(&many[i]), i % 5 != 0);
		EQUAL(bytes[i], i % 5 ? i * 64 / BLOCK : 0);
	}
}

CASE(lio_listio, einval_is_another_mode, CONFORMING)
{
	mixed_list();
	FAILS(lio_listio(LIO_WAIT + LIO_NOWAIT + 1, list, MANY, NULL), EINVAL);
	EQUAL(aio_error(&blocks[0]), 0); /* untouched */
}

CASE(lio_listio, einval_is_more_than_aio_listio_max_or_less_than_none, NOWAIT)
{
	long most = sysconf(_SC_AIO_LISTIO_MAX);
	struct aiocb **nothing = calloc((size_t)most + 1, sizeof *nothing);

	CHECK(nothing);
	FAILS(lio_listio(LIO_NOWAIT, nothing, (int)most + 1, NULL), EINVAL);
	FAILS(lio_listio(LIO_NOWAIT, nothing, -1, NULL), EINVAL);
	EQUAL(lio_listio(LIO_NOWAIT, nothing, (int)most, NULL), 0);
}

CASE(lio_listio, eio_is_a_failure_of_any_and_the_others_go_on, CONFORMING)
{
	int fd = mixed_list();

	blocks[2].aio_fildes = 1000;
	FAILS(lio_listio(LIO_WAIT, list, MANY, NULL), EIO);
	EQUAL(aio_error(&blocks[2]), EBADF);
	EQUAL(aio_return(&blocks[2]), -1);
	memset(buffer[2], 2, BLOCK);
	blocks[2] = blocks[0];
	check_all(fd);
}

CASE(lio_listio, an_unknown_opcode_is_an_error_of_its_block, CONFORMING)
{
	mixed_list();
	blocks[5].aio_lio_opcode = 99;
	FAILS(lio_listio(LIO_WAIT, list, MANY, NULL), EIO);
	EQUAL(aio_error(&blocks[5]), EINVAL);
	for (int i = 0; i < MANY; i++)
		if (i != 5)
			EQUAL(aio_error(&blocks[i]), 0);
}

static _Noreturn void interrupt_again_and_again(void *thread)
{
	for (;;) {
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		sched_yield();
		pthread_testcancel();
	}
}

static void *interrupt(void *thread) { interrupt_again_and_again(thread); }

/* After EINTR, glibc's requests still refer to the stack of the interrupted call. */
CASE(lio_listio, eintr_is_a_signal_and_the_requests_go_on, NOWAIT)
{
	pthread_t self = pthread_self();
	int ends[2];
	char byte;

	EQUAL(pipe(ends), 0);
	count_signals(SIGUSR1);
	mixed_list();
	blocks[0] = transfer(ends[0], &byte, 1, 0);
	pthread_t thread = thread_of(interrupt, &self);
	FAILS(lio_listio(LIO_WAIT, list, MANY, NULL), EINTR);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	EQUAL(aio_error(&blocks[0]), EINPROGRESS);
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(value_at_end(&blocks[0]), 1);
	for (int i = 1; i < MANY; i++)
		EQUAL(value_at_end(&blocks[i]), BLOCK);
}
