/* aio_suspend, aio_error, aio_return. */
#include "check.h"

#include <sys/time.h>

#define BLOCK 4096

static struct aiocb waiting_read(int ends[2])
{
	static char byte;

	EQUAL(pipe(ends), 0);
	return transfer(ends[0], &byte, 1, 0);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *write_byte(void *fd)
{
	CHECK(write(*(int *)fd, "x", 1) == 1);
	return NULL;
}

CASE(aio_suspend, waits_until_one_is_over, CONFORMING)
{
	int first[2], second[2];
	struct aiocb a = waiting_read(first), b = waiting_read(second);
	const struct aiocb *list[] = { &a, &b };

	EQUAL(aio_read(&a), 0);
	EQUAL(aio_read(&b), 0);
	pthread_t thread = thread_of(write_byte, &second[1]);
	EQUAL(aio_suspend(list, 2, NULL), 0);
	EQUAL(aio_error(&b), 0);
	EQUAL(aio_error(&a), EINPROGRESS);
	pthread_join(thread, NULL);
}

CASE(aio_suspend, returns_at_once_if_one_is_over, CONFORMING)
{
	int ends[2];
	char buffer[BLOCK];
	struct aiocb pending = waiting_read(ends);
	struct aiocb over = transfer(new_file("file", BLOCK, 0), buffer, BLOCK, 0);
	const struct aiocb *list[] = { &pending, &over };

	EQUAL(aio_read(&pending), 0);
	EQUAL(aio_read(&over), 0);
	EQUAL(value_at_end(&over), BLOCK);
	EQUAL(aio_suspend(list, 2, NULL), 0);
	EQUAL(aio_suspend(list, 2, &(struct timespec){ 0 }), 0);
}

CASE(aio_suspend, ignores_null_pointers, CONFORMING)
{
	int ends[2];
	struct aiocb block = waiting_read(ends);
	const struct aiocb *list[] = { NULL, &block, NULL };

	EQUAL(aio_read(&block), 0);
	pthread_t thread = thread_of(write_byte, &ends[1]);
	while (aio_error(&block) == EINPROGRESS)
		EQUAL(aio_suspend(list, 3, NULL), 0);
	EQUAL(aio_return(&block), 1);
	pthread_join(thread, NULL);
}

CASE(aio_suspend, eagain_is_the_end_of_the_time_on_the_monotonic_clock, CONFORMING)
{
	int ends[2];
	struct aiocb block = waiting_read(ends);
	const struct aiocb *list[] = { &block };
	const struct timespec wait = { .tv_nsec = 30 * 1000000 };
	double before = seconds();
	int waited;

	EQUAL(aio_read(&block), 0);
	do
		waited = aio_suspend(list, 1, &wait);
	while (waited == -1 && errno == EINTR);
	FAILS(waited, EAGAIN);
	CHECK(seconds() - before >= 0.03);
	FAILS(aio_suspend(list, 1, &(struct timespec){ 0 }), EAGAIN);
	EQUAL(aio_error(&block), EINPROGRESS);
}

CASE(aio_suspend, einval_is_an_invalid_time_or_length, NOWAIT)
{
	int ends[2];
	struct aiocb block = waiting_read(ends);
	const struct aiocb *list[] = { &block };

	EQUAL(aio_read(&block), 0);
	FAILS(aio_suspend(list, 1, &(struct timespec){ .tv_nsec = 2000000000 }), EINVAL);
	FAILS(aio_suspend(list, 1, &(struct timespec){ .tv_nsec = -1 }), EINVAL);
	FAILS(aio_suspend(list, -1, NULL), EINVAL);
}

CASE(aio_suspend, a_time_far_away_is_a_long_wait, NOWAIT)
{
	int ends[2];
	struct aiocb block = waiting_read(ends);
	const struct aiocb *list[] = { &block };
	const struct timespec wait = { .tv_sec = (time_t)1 << 62, .tv_nsec = 999999999 };

	EQUAL(aio_read(&block), 0);
	pthread_t thread = thread_of(write_byte, &ends[1]);
	EQUAL(aio_suspend(list, 1, &wait), 0);
	pthread_join(thread, NULL);
}

/* Starts and ends reads of a pipe, each with a notification by a signal, and waits for each by
 * `wait`. When `wait` returns, the library must have sent the signal. */
static void await_with_notices(void (*wait)(struct aiocb *block))
{
	int ends[2];
	struct aiocb block = waiting_read(ends);

	block_signal(SIGUSR1);
	by_signal(&block, SIGUSR1, 1);
	for (int i = 0; i < 2000; i++) {
		EQUAL(aio_read(&block), 0);
		EQUAL(write(ends[1], "x", 1), 1);
		wait(&block);
		CHECK(is_pending(SIGUSR1));
		take_signal(SIGUSR1);
	}
}

static void suspend(struct aiocb *block)
{
	const struct aiocb *list[] = { block };

	EQUAL(aio_suspend(list, 1, NULL), 0);
}

CASE(aio_suspend, returns_when_the_notice_was_sent, CONFORMING) { await_with_notices(suspend); }

static void look(struct aiocb *block)
{
	while (aio_error(block) == EINPROGRESS)
		continue;
}

CASE(aio_error, shows_the_end_when_the_notice_was_sent, CONFORMING) { await_with_notices(look); }

/* Signals the main thread again and again until `stop`: a signal that arrives before the main
 * thread waits does not interrupt the wait. */
static volatile bool stop;

static void *interrupt(void *thread)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		sched_yield();
	}
	return NULL;
}

CASE(aio_suspend, eintr_is_a_signal, CONFORMING)
{
	int ends[2];
	struct aiocb block = waiting_read(ends);
	const struct aiocb *list[] = { &block };
	pthread_t self = pthread_self();

	count_signals(SIGUSR1);
	EQUAL(aio_read(&block), 0);
	pthread_t thread = thread_of(interrupt, &self);
	FAILS(aio_suspend(list, 1, NULL), EINTR);
	CHECK(signals_seen > 0);
	FAILS(aio_suspend(list, 1, &(struct timespec){ .tv_sec = 600 }), EINTR);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	EQUAL(aio_error(&block), EINPROGRESS);
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(value_at_end(&block), 1);
}

static void *suspended(void *block)
{
	const struct aiocb *list[] = { block };

	aio_suspend(list, 1, NULL);
	return NULL;
}

CASE(aio_suspend, is_a_cancellation_point, CONFORMING)
{
	int ends[2];
	struct aiocb block = waiting_read(ends);

	EQUAL(aio_read(&block), 0);
	/* More cancelled waits than the library has slots for waiters: each must free its slot. */
	for (int i = 0; i < 100; i++) {
		pthread_t thread = thread_of(suspended, &block);
		void *result;

		EQUAL(pthread_cancel(thread), 0);
		EQUAL(pthread_join(thread, &result), 0);
		CHECK(result == PTHREAD_CANCELED);
	}
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(value_at_end(&block), 1);
}

/* More threads and requests than glibc has threads. */
CASE(aio_suspend, wakes_each_of_many_threads, NOWAIT)
{
	enum { MANY = 50 };
	static struct aiocb blocks[MANY];
	static int ends[MANY][2];
	pthread_t threads[MANY];

	for (int i = 0; i < MANY; i++) {
		blocks[i] = waiting_read(ends[i]);
		EQUAL(aio_read(&blocks[i]), 0);
		threads[i] = thread_of(suspended, &blocks[i]);
	}
	for (int i = MANY - 1; i >= 0; i--) {
		EQUAL(write(ends[i][1], "x", 1), 1);
		EQUAL(pthread_join(threads[i], NULL), 0);
		EQUAL(aio_error(&blocks[i]), 0);
	}
}

CASE(aio_suspend, many_threads_may_wait_for_one, CONFORMING)
{
	enum { MANY = 8 };
	int ends[2];
	struct aiocb block = waiting_read(ends);
	pthread_t threads[MANY];

	EQUAL(aio_read(&block), 0);
	for (int i = 0; i < MANY; i++)
		threads[i] = thread_of(suspended, &block);
	EQUAL(write(ends[1], "x", 1), 1);
	for (int i = 0; i < MANY; i++)
		EQUAL(pthread_join(threads[i], NULL), 0);
}

/* The block that the handler waits for. The main program starts a request with it again and again.
 */
static struct aiocb *volatile awaited;

static void wait_in_handler(int signo)
{
	struct aiocb *block = awaited;
	const struct aiocb *list[] = { block };

	(void)signo;
	if (!block)
		return;
	while (aio_error(block) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	if (aio_return(block) == BLOCK)
		signals_seen++;
	awaited = NULL;
}

/* glibc's aio_suspend takes a lock that the call interrupted by the handler may hold. */
CASE(aio_suspend, is_safe_in_a_signal_handler, NOWAIT)
{
	enum { MANY = 32 };
	static struct aiocb blocks[MANY], own;
	static char buffer[MANY + 1][BLOCK];
	struct sigaction action = { .sa_handler = wait_in_handler };
	const struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
	int fd = new_file("file", MANY * BLOCK, 0);

	EQUAL(sigaction(SIGALRM, &action, NULL), 0);
	EQUAL(setitimer(ITIMER_REAL, &often, NULL), 0);
	while (signals_seen < 300) {
		if (!awaited) {
			own = transfer(fd, buffer[MANY], BLOCK, 0);
			EQUAL(aio_read(&own), 0);
			awaited = &own;
		}
		for (int i = 0; i < MANY; i++) {
			blocks[i] = transfer(fd, buffer[i], BLOCK, (off_t)i * BLOCK);
			EQUAL(aio_read(&blocks[i]), 0);
		}
		for (int i = 0; i < MANY; i++)
			EQUAL(value_at_end(&blocks[i]), BLOCK);
	}
	EQUAL(setitimer(ITIMER_REAL, &never, NULL), 0);
}

CASE(aio_error, is_einprogress_then_0, CONFORMING)
{
	int ends[2];
	struct aiocb block = waiting_read(ends);

	EQUAL(aio_read(&block), 0);
	EQUAL(aio_error(&block), EINPROGRESS);
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(error_at_end(&block), 0);
	EQUAL(aio_error(&block), 0);
}

CASE(aio_error, is_the_errno_of_the_operation, CONFORMING)
{
	struct aiocb block = transfer(open(path("."), O_RDONLY | O_DIRECTORY), "x", 1, 0);

	EQUAL(aio_read(&block), 0);
	EQUAL(error_at_end(&block), EISDIR);
	EQUAL(aio_return(&block), -1);
}

CASE(aio_return, is_what_read_write_and_fsync_return, CONFORMING)
{
	char buffer[2 * BLOCK];
	int fd = new_file("file", BLOCK + 1, 0);
	struct aiocb in = transfer(fd, buffer, sizeof buffer, 0);
	struct aiocb out = transfer(fd, buffer, 33, 0), sync = out;

	EQUAL(aio_read(&in), 0);
	EQUAL(value_at_end(&in), BLOCK + 1);
	EQUAL(aio_write(&out), 0);
	EQUAL(value_at_end(&out), 33);
	EQUAL(aio_fsync(O_SYNC, &sync), 0);
	EQUAL(value_at_end(&sync), 0);
}

CASE(aio_return, a_block_may_be_used_again_after_it, CONFORMING)
{
	char buffer[BLOCK];
	struct aiocb block = transfer(new_file("file", 8 * BLOCK, 0), buffer, BLOCK, 0);

	for (int i = 0; i < 1000; i++) {
		block.aio_offset = i % 8 * BLOCK;
		EQUAL(aio_read(&block), 0);
		EQUAL(value_at_end(&block), BLOCK);
		EQUAL(buffer[0], i % 8);
	}
}

CASE(aio_return, a_block_may_be_freed_after_it, NOWAIT)
{
	char buffer[BLOCK];
	int fd = new_file("file", BLOCK, O_DIRECT);

	(void)buffer;
	for (int i = 0; i < 300; i++) {
		struct aiocb *block = malloc(sizeof *block);
		char *memory = aligned_alloc(BLOCK, BLOCK);

		*block = transfer(fd, memory, BLOCK, 0);
		EQUAL(aio_read(block), 0);
		while (aio_error(block) == EINPROGRESS)
			sched_yield();
		EQUAL(aio_return(block), BLOCK);
		/* A later write of the library to the block would change a byte. */
		memset(block, 0xff, sizeof *block);
		for (size_t at = 0; at < sizeof *block; at++)
			EQUAL(((unsigned char *)block)[at], 0xff);
		free(block);
		free(memory);
	}
}
