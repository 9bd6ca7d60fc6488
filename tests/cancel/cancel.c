/* pthread_cancel of a thread in io_getevents: with the asynchronous type it ends there, with the
 * deferred one after the call, and others go on with the context.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 20
#define CHECK(claim) ((claim) ? (void)0 : fail(#claim, __LINE__))

struct iocb {
	void *data;
	unsigned key, rw_flags;
	short opcode, reqprio;
	int fildes;
	unsigned long buffer, bytes;
	long offset, reserved;
	unsigned flags, resfd;
};

struct event {
	void *data, *obj;
	long res, res2;
};

extern int io_setup(int nr, void **ctx);
extern int io_destroy(void *ctx);
extern int io_submit(void *ctx, long nr, struct iocb **iocbs);
extern int io_getevents(void *ctx, long min, long nr, struct event *events, void *timeout);

static void *ctx;
static volatile pid_t waiter;
static volatile int type, got;

static void fail(const char *claim, int line)
{
	fprintf(stderr, "line %d: %s does not hold\n", line, claim);
	exit(1);
}

static void *wait_for_one(void *unused)
{
	struct event event;

	pthread_setcanceltype(type, NULL);
	waiter = gettid();
	got = io_getevents(ctx, 1, 1, &event, NULL);
	pthread_testcancel();
	return unused;
}

static void until_asleep(void)
{
	char name[64], line[512];

	for (;;) {
		FILE *about;

		sched_yield();
		if (waiter == 0)
			continue;
		snprintf(name, sizeof name, "/proc/self/task/%d/stat", waiter);
		about = fopen(name, "r");
		CHECK(about && fgets(line, sizeof line, about));
		fclose(about);
		if (strstr(line, ") S "))
			return;
	}
}

static void cancel_in_wait(int how, int has_request)
{
	struct event event;
	struct iocb poll = { .opcode = 5, .buffer = POLLIN }, *list[] = { &poll };
	pthread_t thread;
	void *result;
	int ends[2];

	CHECK(pipe(ends) == 0);
	poll.fildes = ends[0];
	if (has_request)
		CHECK(io_submit(ctx, 1, list) == 1);
	type = how;
	waiter = got = 0;
	CHECK(pthread_create(&thread, NULL, wait_for_one, NULL) == 0);
	until_asleep();
	CHECK(pthread_cancel(thread) == 0);
	if (how == PTHREAD_CANCEL_DEFERRED)
		CHECK(write(ends[1], "x", 1) == 1);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK(got == (how == PTHREAD_CANCEL_DEFERRED));
	if (how == PTHREAD_CANCEL_ASYNCHRONOUS) {
		if (!has_request)
			CHECK(io_submit(ctx, 1, list) == 1);
		CHECK(write(ends[1], "x", 1) == 1);
		CHECK(io_getevents(ctx, 1, 1, &event, NULL) == 1);
	}
	close(ends[0]);
	close(ends[1]);
}

/* Cancelled before it comes to the first call, which starts the engine. */
static void *begin_cancelled(void *unused)
{
	pthread_cancel(pthread_self());
	got = io_setup(8, &ctx);
	pthread_testcancel();
	return unused;
}

int main(void)
{
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, begin_cancelled, NULL) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED && got == 0 && ctx);
	for (int round = 0; round < ROUNDS; round++) {
		cancel_in_wait(PTHREAD_CANCEL_ASYNCHRONOUS, 1);
		cancel_in_wait(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
		cancel_in_wait(PTHREAD_CANCEL_DEFERRED, 1);
	}
	CHECK(io_destroy(ctx) == 0);
	return 0;
}
