/* aio_suspend(3) is a cancellation point; aio_read(3) is none, and completes. */
#include "check.h"

static int ends[2];
static char byte;

static void *suspend(void *block)
{
	const struct aiocb *list[] = { block };

	aio_suspend(list, 1, NULL);
	return NULL;
}

static void *suspend_at_any_time(void *block)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	return suspend(block);
}

static void cancel_in(void *(*wait)(void *))
{
	for (int round = 0; round < 20; round++) {
		struct aiocb block;
		void *result;

		EQUAL(pipe(ends), 0);
		block = transfer(ends[0], &byte, 1, 0);
		EQUAL(aio_read(&block), 0);
		pthread_t thread = thread_of(wait, &block);
		sched_yield();
		EQUAL(pthread_cancel(thread), 0);
		EQUAL(pthread_join(thread, &result), 0);
		CHECK(result == PTHREAD_CANCELED);
		EQUAL(write(ends[1], "x", 1), 1);
		EQUAL(value_at_end(&block), 1);
		close(ends[0]);
		close(ends[1]);
	}
}

CASE(pthread_cancel, ends_a_thread_that_is_suspended, CONFORMING) { cancel_in(suspend); }

CASE(pthread_cancel, ends_one_that_may_end_at_any_time, NOWAIT)
{
	cancel_in(suspend_at_any_time);
}

static void *read_cancelled(void *block)
{
	pthread_cancel(pthread_self());
	EQUAL(aio_read(block), 0);
	pthread_testcancel();
	return NULL;
}

/* A thread cancels itself before its first call, which also starts the engine. */
CASE(pthread_cancel, does_not_end_a_thread_in_aio_read, NOWAIT)
{
	struct aiocb block = transfer(new_file("file", 4096, 0), &byte, 1, 0);
	pthread_t thread = thread_of(read_cancelled, &block);
	void *result;

	EQUAL(pthread_join(thread, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	EQUAL(value_at_end(&block), 1);
}
