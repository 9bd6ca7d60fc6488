/* Cancellation of threads (pthread_cancel(3)). The C library ends a cancelled thread by unwinding
 * its stack, which must not contain frames of the engine. So a cancellation takes effect before or
 * after a call of the engine.
 *
 * A signal handler may leave by longjmp(3), so that the end of the interrupted call never runs. The
 * handler therefore runs with the program's own cancellation type and state (signals.c), which
 * `nowait_cancel` holds meanwhile.
 */
#ifndef NOWAIT_CANCEL_H
#define NOWAIT_CANCEL_H

#include <pthread.h>
#include <stdbool.h>

struct cancel {
	/* Number of nested calls in progress; if 0, the other members have no meaning. */
	unsigned calls;
	/* The program's type and state. A negative state: the call has not changed the program's
	 * state. */
	int type, state;
};

extern __thread struct cancel nowait_cancel __attribute__((visibility("hidden")));

/* Between these two calls, as in a call of the engine, signal handlers are deferred. */
extern void nowait_begin(void) __attribute__((visibility("hidden")));
extern void nowait_end(void) __attribute__((visibility("hidden")));

/* Stores `calls` last: a handler that runs before finds 0, and ignores the other members. */
static inline void cancel_note(struct cancel had)
{
	nowait_cancel.type = had.type;
	nowait_cancel.state = had.state;
	__atomic_signal_fence(__ATOMIC_RELEASE);
	nowait_cancel.calls = had.calls;
}

/* Begins a call of the engine that uses no cancellation point of the C library. Until
 * asynchronous_cancel_back(), no cancellation takes effect on this thread. Costs no atomic
 * operation if the type is deferred already. */
static inline int asynchronous_cancel_off(void)
{
	int type;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	if (type != PTHREAD_CANCEL_DEFERRED)
		cancel_note((struct cancel){ .calls = 1, .type = type, .state = -1 });
	return type;
}

/* Restores the type if it was asynchronous. A thread that was cancelled meanwhile then ends here;
 * otherwise it may be cancelled at any later instruction. */
static inline void asynchronous_cancel_back(int type)
{
	if (type != PTHREAD_CANCEL_DEFERRED) {
		pthread_setcanceltype(type, NULL);
		nowait_cancel.calls = 0;
	}
}

/* Called before a thread whose type is deferred sleeps: lets a cancellation end the sleeping
 * thread. Returns false if `nowait_cancel` already holds the program's own type. */
static inline bool asynchronous_cancel_on(void)
{
	bool is_first = nowait_cancel.calls == 0;

	if (is_first)
		cancel_note((struct cancel){ 1, PTHREAD_CANCEL_DEFERRED, -1 });
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	return is_first;
}

static inline void asynchronous_cancel_end(bool is_first)
{
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
	if (is_first)
		nowait_cancel.calls = 0;
}

/* Begins a call of the engine that may use any function of the C library. */
static inline void cancel_off(void)
{
	nowait_begin();
	if (nowait_cancel.calls == 0) {
		pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &nowait_cancel.type);
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &nowait_cancel.state);
	}
	nowait_cancel.calls++;
}

static inline void cancel_back(void)
{
	nowait_end();
	if (nowait_cancel.calls == 1) {
		pthread_setcancelstate(nowait_cancel.state, NULL);
		pthread_setcanceltype(nowait_cancel.type, NULL);
	}
	nowait_cancel.calls--;
}

#define UNCANCELLED(call)                                                                      \
	({                                                                                     \
		cancel_off();                                                                  \
		__typeof__(call) value_ = (call);                                              \
		cancel_back();                                                                 \
		value_;                                                                        \
	})

#endif
