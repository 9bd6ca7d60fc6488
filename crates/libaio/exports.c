/* The symbols of libaio and their versions; each is a jump to the engine's side (exports.rs).
 *
 * A version script alone cannot give two versions of one name, hence the symver directives.
 * Structures pass through untouched, so they are void here.
 */
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "cancel.h"

#define HIDDEN __attribute__((visibility("hidden")))

extern int nowait_io_setup(int nr, void *ctxp) HIDDEN;
extern int nowait_io_destroy(void *ctx) HIDDEN;
extern int nowait_io_submit(void *ctx, long nr, void *iocbs) HIDDEN;
extern int nowait_io_cancel(void *ctx, void *iocb, void *event) HIDDEN;
extern int nowait_io_getevents(void *ctx, long min, long nr, void *events, void *timeout) HIDDEN;
extern int nowait_io_pgetevents(void *ctx, long min, long nr, void *events, void *timeout,
				void *sigmask) HIDDEN;
extern void nowait_at_exit(void) HIDDEN;

struct event {
	void *data, *obj;
	long res, res2;
};

struct timeout {
	long seconds, nanoseconds;
};

#define VERSIONED(local, name, version) __asm__(".symver " #local "," #name version)

static int setup(int nr, void *ctxp)
{
	struct cancel before = cancel_off();
	int ret = nowait_io_setup(nr, ctxp);

	cancel_back(before);
	return ret;
}

static int destroy(void *ctx)
{
	struct cancel before = cancel_off();
	int ret = nowait_io_destroy(ctx);

	cancel_back(before);
	return ret;
}

static int cancel(void *ctx, void *iocb, void *event)
{
	struct cancel before = cancel_off();
	int ret = nowait_io_cancel(ctx, iocb, event);

	cancel_back(before);
	return ret;
}

struct wait {
	void *ctx, *mask;
	bool masked;
};

static int take(const struct wait *wait, long min, long nr, struct event *events, void *timeout)
{
	if (wait->masked)
		return nowait_io_pgetevents(wait->ctx, min, nr, events, timeout, wait->mask);
	return nowait_io_getevents(wait->ctx, min, nr, events, timeout);
}

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Waits for a thread that may be cancelled while it waits, which sleeps in the engine's frames: so
 * it comes back from them now and then. */
static int wait_in_slices(const struct wait *wait, long min, long nr, struct event *events,
			  const struct timeout *timeout)
{
	const long slice = 10000000, longest = 1L << 32;
	long until = 0, taken = 0, left = slice;
	bool endless = !timeout || timeout->seconds < 0 || timeout->nanoseconds < 0 ||
		       timeout->seconds > longest;

	if (!endless)
		until = now_ns() + timeout->seconds * 1000000000 + timeout->nanoseconds;
	for (;;) {
		struct timeout part = { 0, slice };
		int ret;

		if (!endless && (left = until - now_ns()) < slice)
			part.nanoseconds = left > 0 ? left : 0;
		ret = take(wait, min - taken, nr - taken, events + taken, &part);
		asynchronous_cancel_back(PTHREAD_CANCEL_ASYNCHRONOUS);
		asynchronous_cancel_off();
		if (ret < 0)
			return taken > 0 ? (int)taken : ret;
		taken += ret;
		if (taken >= min || left <= 0)
			return (int)taken;
	}
}

static int get_events(const struct wait *wait, long min, long nr, void *events, void *timeout)
{
	int before = asynchronous_cancel_off();
	int ret;

	if (before == PTHREAD_CANCEL_DEFERRED || min <= 0 || min > nr)
		ret = take(wait, min, nr, events, timeout);
	else
		ret = wait_in_slices(wait, min, nr, events, timeout);
	asynchronous_cancel_back(before);
	return ret;
}

int io_setup_04(int nr, void *ctxp) { return setup(nr, ctxp); }
VERSIONED(io_setup_04, io_setup, "@@LIBAIO_0.4");

int io_destroy_04(void *ctx) { return destroy(ctx); }
VERSIONED(io_destroy_04, io_destroy, "@@LIBAIO_0.4");

int io_submit_01(void *ctx, long nr, void *iocbs)
{
	int before = asynchronous_cancel_off();
	int ret = nowait_io_submit(ctx, nr, iocbs);

	asynchronous_cancel_back(before);
	return ret;
}
VERSIONED(io_submit_01, io_submit, "@@LIBAIO_0.1");

int io_cancel_04(void *ctx, void *iocb, void *event) { return cancel(ctx, iocb, event); }
VERSIONED(io_cancel_04, io_cancel, "@@LIBAIO_0.4");

int io_cancel_01(void *ctx, void *iocb)
{
	struct event event;
	return cancel(ctx, iocb, &event);
}
VERSIONED(io_cancel_01, io_cancel, "@LIBAIO_0.1");

int io_getevents_04(void *ctx, long min, long nr, void *events, void *timeout)
{
	return get_events(&(struct wait){ .ctx = ctx }, min, nr, events, timeout);
}
VERSIONED(io_getevents_04, io_getevents, "@@LIBAIO_0.4");

int io_getevents_01(void *ctx, long nr, void *events, void *timeout)
{
	return get_events(&(struct wait){ .ctx = ctx }, 1, nr, events, timeout);
}
VERSIONED(io_getevents_01, io_getevents, "@LIBAIO_0.1");

int io_pgetevents_05(void *ctx, long min, long nr, void *events, void *timeout, void *sigmask)
{
	const struct wait wait = { .ctx = ctx, .mask = sigmask, .masked = true };

	return get_events(&wait, min, nr, events, timeout);
}
VERSIONED(io_pgetevents_05, io_pgetevents, "@@LIBAIO_0.5");

int io_queue_init_01(int nr, void **ctxp)
{
	if (nr <= 0)
		return -22; /* EINVAL */
	*ctxp = NULL;
	return setup(nr, ctxp);
}
VERSIONED(io_queue_init_01, io_queue_init, "@@LIBAIO_0.1");

int io_queue_release_01(void *ctx) { return destroy(ctx); }
VERSIONED(io_queue_release_01, io_queue_release, "@@LIBAIO_0.1");

/* Takes ready events one by one and calls the callback in each. */
int io_queue_run_01(void *ctx)
{
	struct timeout none = { 0, 0 };
	struct event event;
	int ret;

	while ((ret = io_getevents_04(ctx, 0, 1, &event, &none)) == 1) {
		void (*callback)(void *, void *, long, long) =
			(void (*)(void *, void *, long, long))event.data;
		callback(ctx, event.obj, event.res, event.res2);
	}
	return ret;
}
VERSIONED(io_queue_run_01, io_queue_run, "@@LIBAIO_0.1");

int io_queue_wait_04(void *ctx, void *timeout)
{
	return io_getevents_04(ctx, 0, 0, NULL, timeout);
}
VERSIONED(io_queue_wait_04, io_queue_wait, "@@LIBAIO_0.4");

int io_queue_wait_01(void *ctx, void *timeout)
{
	return io_getevents_04(ctx, 0, 0, NULL, timeout);
}
VERSIONED(io_queue_wait_01, io_queue_wait, "@LIBAIO_0.1");

/* After the program's own atexit handlers: those may still use their contexts. */
__attribute__((destructor)) static void at_exit(void) { nowait_at_exit(); }
