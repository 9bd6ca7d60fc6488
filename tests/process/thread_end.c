/* A signal handler calls pthread_exit in a thread that waits for an event: the thread ends there,
 * its cleanup handlers run, and other threads continue with the context. `thread_end CALL`.
 */
#include "check.h"
#include <aio.h>

#define ROUNDS 10

static void *ctx;
static int ends[2];
static volatile pid_t waiter;
static volatile int cleaned;

static void ends_the_thread(int signal) { pthread_exit((void *)(long)signal); }
static void clean(void *unused) { (void)unused, cleaned++; }

static void *wait_for_ever(void *unused)
{
	struct event event;

	pthread_cleanup_push(clean, NULL);
	waiter = gettid();
	io_getevents(ctx, 1, 1, &event, NULL);
	pthread_cleanup_pop(0);
	return unused;
}

static void *wait_masked(void *unused)
{
	struct event event;
	sigset_t none, one;

	sigemptyset(&none);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0);
	pthread_cleanup_push(clean, NULL);
	waiter = gettid();
	io_pgetevents(ctx, 1, 1, &event, NULL, &none);
	pthread_cleanup_pop(0);
	return unused;
}

static void *suspend_for_ever(void *block)
{
	const struct aiocb *list[] = { block };

	pthread_cleanup_push(clean, NULL);
	waiter = gettid();
	aio_suspend(list, 1, NULL);
	pthread_cleanup_pop(0);
	return NULL;
}

static void end_a_waiter(void *(*wait)(void *), void *argument)
{
	pthread_t thread;
	void *result;

	waiter = cleaned = 0;
	CHECK(pthread_create(&thread, NULL, wait, argument) == 0);
	until_asleep(getpid(), &waiter);
	CHECK(pthread_kill(thread, SIGUSR1) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK((long)result == SIGUSR1 && cleaned == 1);
}

static void round_of_libaio(void *(*wait)(void *), int has_request)
{
	struct iocb poll = { .opcode = 5, .fildes = ends[0], .buffer = POLLIN }, *list[] = { &poll };
	struct event event;

	if (has_request)
		CHECK(io_submit(ctx, 1, list) == 1);
	end_a_waiter(wait, NULL);
	if (!has_request)
		CHECK(io_submit(ctx, 1, list) == 1);
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(io_getevents(ctx, 1, 1, &event, NULL) == 1);
	CHECK(event.obj == &poll);
}

static void round_of_posix(void)
{
	char byte;
	struct aiocb block = { .aio_fildes = ends[0], .aio_buf = &byte, .aio_nbytes = 1 };
	const struct aiocb *list[] = { &block };

	block.aio_sigevent.sigev_notify = SIGEV_NONE;
	CHECK(aio_read(&block) == 0);
	end_a_waiter(suspend_for_ever, &block);
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(aio_suspend(list, 1, NULL) == 0);
	CHECK(aio_error(&block) == 0 && aio_return(&block) == 1);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	signal(SIGUSR1, ends_the_thread);
	CHECK(io_setup(8, &ctx) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		CHECK(pipe(ends) == 0);
		if (strcmp(argv[1], "aio_suspend") == 0)
			round_of_posix();
		else if (strcmp(argv[1], "io_pgetevents") == 0)
			round_of_libaio(wait_masked, round % 2);
		else
			round_of_libaio(wait_for_ever, round % 2);
		close(ends[0]);
		close(ends[1]);
	}
	CHECK(io_destroy(ctx) == 0);
	return 0;
}
