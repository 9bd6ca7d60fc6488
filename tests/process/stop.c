/* SIGSTOP and SIGCONT while requests are in flight and threads wait. All requests complete, and a
 * waiting thread continues, or io_getevents fails with EINTR, as with the kernel's AIO.
 * `stop FOLDER`. */
#include "check.h"
#include <aio.h>
#include <sys/mman.h>

#define ROUNDS 5

static struct shared {
	volatile pid_t in_getevents, in_suspend;
	volatile int rounds, is_over;
} *shared;

static struct work work;

static void *waits_for_events(void *unused)
{
	shared->in_getevents = gettid();
	end_work(&work);
	return unused;
}

static void *is_suspended(void *block)
{
	const struct aiocb *list[] = { block };

	shared->in_suspend = gettid();
	CHECK(aio_suspend(list, 1, NULL) == 0);
	return NULL;
}

/* Until the parent sets `is_over`, the main thread submits, other threads reap, and one thread
 * waits in aio_suspend. */
static void be_stopped(const char *path)
{
	struct event event;
	pthread_t suspended;
	int silent[2], ends[2];
	char byte;
	void *ctx = NULL;

	CHECK(pipe(silent) == 0 && pipe(ends) == 0 && io_setup(1, &ctx) == 0);
	struct aiocb block = { .aio_fildes = ends[0], .aio_buf = &byte, .aio_nbytes = 1 };
	struct iocb poll = { .opcode = 5, .fildes = silent[0], .buffer = POLLIN }, *list[] = { &poll };

	block.aio_sigevent.sigev_notify = SIGEV_NONE;
	CHECK(aio_read(&block) == 0 && io_submit(ctx, 1, list) == 1);
	CHECK(pthread_create(&suspended, NULL, is_suspended, &block) == 0);
	while (!shared->is_over) {
		pthread_t waits;

		begin_work(&work, path, (char)++shared->rounds);
		CHECK(pthread_create(&waits, NULL, waits_for_events, NULL) == 0);
		CHECK(pthread_join(waits, NULL) == 0);
	}
	CHECK(write(silent[1], "x", 1) == 1 && write(ends[1], "x", 1) == 1);
	take_event(ctx, &event);
	CHECK(event.obj == &poll);
	CHECK(pthread_join(suspended, NULL) == 0);
	CHECK(aio_error(&block) == 0 && aio_return(&block) == 1);
	CHECK(io_destroy(ctx) == 0);
}

/* A thread that only waits, so that it certainly sleeps when the process stops. */
static void *waits_for_one(void *ctx)
{
	struct event event;

	shared->in_getevents = gettid();
	take_event(ctx, &event);
	CHECK(event.res & POLLIN);
	return NULL;
}

static void sleep_and_be_stopped(void)
{
	struct iocb poll = { .opcode = 5, .buffer = POLLIN }, *list[] = { &poll };
	pthread_t waits;
	void *ctx = NULL;
	int ends[2];

	CHECK(pipe(ends) == 0 && io_setup(1, &ctx) == 0);
	poll.fildes = ends[0];
	CHECK(io_submit(ctx, 1, list) == 1);
	CHECK(pthread_create(&waits, NULL, waits_for_one, ctx) == 0);
	while (!shared->is_over)
		sched_yield();
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(pthread_join(waits, NULL) == 0);
	CHECK(io_destroy(ctx) == 0);
}

static int runs(pid_t child)
{
	siginfo_t about = { 0 };

	return waitid(P_PID, child, &about, WEXITED | WNOHANG | WNOWAIT) == 0 && !about.si_pid;
}

static void stop_and_continue(pid_t child)
{
	int status;

	CHECK(kill(child, SIGSTOP) == 0);
	CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	CHECK(kill(child, SIGCONT) == 0);
	CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
}

static void stop_often(const char *path)
{
	int status;
	pid_t child;

	memset(shared, 0, sizeof *shared);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		path ? be_stopped(path) : sleep_and_be_stopped();
		exit(0);
	}
	for (int round = 0; round < ROUNDS; round++) {
		int before = shared->rounds;

		volatile pid_t *waiter = path ? &shared->in_suspend : &shared->in_getevents;

		while (*waiter == 0 || !is_asleep(child, *waiter))
			CHECK(runs(child));
		stop_and_continue(child);
		while (path && shared->rounds == before)
			CHECK(runs(child));
	}
	shared->is_over = 1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	char path[4096];

	CHECK(argc == 2);
	snprintf(path, sizeof path, "%s/file", argv[1]);
	shared = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	stop_often(path);
	stop_often(NULL);
	return 0;
}
