/* The symbols of libaio and their versions. Each symbol calls a function of exports.rs, in which
 * pthread_cancel(3) does not end the thread.
 *
 * A version script alone cannot give two versions of one name, hence the symver directives.
 * Structures pass through unchanged, so this file declares pointers to void.
 */
#include <stddef.h>
#include <sys/syscall.h>

#include "cancel.h"
#include "raw.h"
#include "wait.h"

extern int nowait_io_setup(int nr, void *ctxp) HIDDEN;
extern int nowait_io_destroy(void *ctx) HIDDEN;
extern int nowait_io_submit(void *ctx, long nr, void *iocbs) HIDDEN;
extern int nowait_io_cancel(void *ctx, void *iocb, void *event) HIDDEN;
extern int nowait_io_getevents(void *ctx, long min, long nr, void *events, void *timeout) HIDDEN;
extern int nowait_io_pgetevents(void *ctx, long min, long nr, void *events, void *timeout,
				void *sigmask) HIDDEN;
extern void nowait_at_load(bool is_alone) HIDDEN;
extern char __libc_single_threaded __attribute__((weak));
extern void nowait_at_exit(void) HIDDEN;

#define VERSIONED(local, name, version) __asm__(".symver " #local "," #name version)

__thread struct cancel nowait_cancel;

/* The kernel answers for contexts made by a child of vfork, or by the program without this
 * library. */
static int answered(int answer, long nr, const long args[6])
{
	long ret;

	if (answer != NOT_OURS)
		return answer;
	ret = raw(nr, args);
	/* If the kernel has no such call or a filter refuses it, no such context exists. */
	return nr != SYS_io_setup && (ret == -ENOSYS || ret == -EPERM) ? -EINVAL : (int)ret;
}

static int setup(int nr, void *ctxp)
{
	return answered(UNCANCELLED(nowait_io_setup(nr, ctxp)), SYS_io_setup,
			(long[6]){ nr, (long)ctxp });
}

static int destroy(void *ctx)
{
	return answered(UNCANCELLED(nowait_io_destroy(ctx)), SYS_io_destroy, (long[6]){ (long)ctx });
}

static int cancel(void *ctx, void *iocb, void *event)
{
	return answered(UNCANCELLED(nowait_io_cancel(ctx, iocb, event)), SYS_io_cancel,
			(long[6]){ (long)ctx, (long)iocb, (long)event });
}

static int take(const struct wait *wait, long min, long nr, struct event *events, void *timeout)
{
	return answered(nowait_io_getevents(wait->ctx, min, nr, events, timeout), SYS_io_getevents,
			(long[6]){ (long)wait->ctx, min, nr, (long)events, (long)timeout });
}

static int take_masked(const struct wait *wait, long min, long nr, struct event *events,
		       void *timeout)
{
	const long mask[2] = { (long)wait->mask, 8 };

	return answered(nowait_io_pgetevents(wait->ctx, min, nr, events, timeout, wait->mask),
			SYS_io_pgetevents,
			(long[6]){ (long)wait->ctx, min, nr, (long)events, (long)timeout,
				   (long)mask });
}

int io_setup_04(int nr, void *ctxp) { return setup(nr, ctxp); }
VERSIONED(io_setup_04, io_setup, "@@LIBAIO_0.4");

int io_destroy_04(void *ctx) { return destroy(ctx); }
VERSIONED(io_destroy_04, io_destroy, "@@LIBAIO_0.4");

int io_submit_01(void *ctx, long nr, void *iocbs)
{
	int type = asynchronous_cancel_off();
	int ret = nowait_io_submit(ctx, nr, iocbs);

	asynchronous_cancel_back(type);
	return answered(ret, SYS_io_submit, (long[6]){ (long)ctx, nr, (long)iocbs });
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
	return get_events(&(struct wait){ take, ctx, NULL }, min, nr, events, timeout);
}
VERSIONED(io_getevents_04, io_getevents, "@@LIBAIO_0.4");

int io_getevents_01(void *ctx, long nr, void *events, void *timeout)
{
	return get_events(&(struct wait){ take, ctx, NULL }, 1, nr, events, timeout);
}
VERSIONED(io_getevents_01, io_getevents, "@LIBAIO_0.1");

int io_pgetevents_05(void *ctx, long min, long nr, void *events, void *timeout, void *sigmask)
{
	const struct wait wait = { take_masked, ctx, sigmask };

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

/* Takes ready events one by one, and calls the callback of each event. */
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

__attribute__((constructor)) static void at_load(void)
{
	/* glibc has this symbol from 2.32 on. */
	nowait_at_load(&__libc_single_threaded && __libc_single_threaded);
}

/* Runs after the program's own atexit handlers: they may still use their contexts. */
__attribute__((destructor)) static void at_exit(void) { nowait_at_exit(); }
