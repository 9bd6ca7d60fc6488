/* Cancellation of threads (pthread_cancel). It ends a thread by unwinding its stack, which must not
 * contain frames of the engine. So a thread is cancelled before or after a call of the engine, as
 * with a system call.
 *
 * A signal handler may leave by longjmp(3), so that the end of the interrupted call never runs. The
 * handler therefore runs with the program's own cancellation type and state (signals.c). They are
 * noted in thread-local memory before anything is changed.
 */
#ifndef NOWAIT_CANCEL_H
#define NOWAIT_CANCEL_H

#include <pthread.h>
#include <stdbool.h>

struct cancel {
	/* Calls in progress, one inside another; if 0, the other members have no meaning. */
	unsigned calls;
	/* The program's type and state; a negative state was not changed. */
	int type, state;
};

extern __thread struct cancel nowait_cancel __attribute__((visibility("hidden")));

/* The program's signal handlers wait between these two, as in a call of the engine. */
extern void nowait_begin(void) __attribute__((visibility("hidden")));
extern void nowait_end(void) __attribute__((visibility("hidden")));

/* Stores `calls` last: a handler that runs before ignores the rest. */
static inline void cancel_note(struct cancel had)
{
	nowait_cancel.type = had.type;
	nowait_cancel.state = had.state;
	__atomic_signal_fence(__ATOMIC_RELEASE);
	nowait_cancel.calls = had.calls;
}

/* For calls that use no function of the C library that is a cancellation point: until
 * asynchronous_cancel_back() nothing cancels the thread. Costs no atomic operation if the type is
 * deferred already. */
static inline int asynchronous_cancel_off(void)
{
	int type;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	if (type != PTHREAD_CANCEL_DEFERRED)
		cancel_note((struct cancel){ .calls = 1, .type = type, .state = -1 });
	return type;
}

/* Restores the asynchronous type: a thread that was cancelled meanwhile ends here, and from here on
 * it may be cancelled at any instruction. */
static inline void asynchronous_cancel_back(int type)
{
	if (type != PTHREAD_CANCEL_DEFERRED) {
		pthread_setcanceltype(type, NULL);
		nowait_cancel.calls = 0;
	}
}

/* Before a call with the deferred type sleeps: lets a cancellation end the sleeping thread. Returns
 * false if the type noted for the program is the asynchronous one. */
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

/* For calls that may use any function of the C library. */
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
