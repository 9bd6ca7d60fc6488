/* Cancellation of threads (pthread_cancel): it ends a thread by unwinding its stack, which must not
 * meet the engine's frames. It is acted on before or after them, as by a system call.
 *
 * A handler may leave by longjmp(3), and then the end of a call is never reached. So it has what
 * the program had (signals.c), which is kept in memory of the thread, and nothing is changed where
 * one may run before that is there.
 */
#ifndef NOWAIT_CANCEL_H
#define NOWAIT_CANCEL_H

#include <pthread.h>
#include <stdbool.h>

struct cancel {
	/* Running, one in another; where there are none the rest means nothing. */
	unsigned calls;
	/* What the program has; a negative state was left alone. */
	int type, state;
};

extern __thread struct cancel nowait_cancel __attribute__((visibility("hidden")));

/* Between them handlers wait, as in every call of the engine's side. */
extern void nowait_begin(void) __attribute__((visibility("hidden")));
extern void nowait_end(void) __attribute__((visibility("hidden")));

/* The calls last: before they are there nothing is noted. */
static inline void cancel_note(struct cancel had)
{
	nowait_cancel.type = had.type;
	nowait_cancel.state = had.state;
	__atomic_signal_fence(__ATOMIC_RELEASE);
	nowait_cancel.calls = had.calls;
}

/* For calls that use no function of the C library that is a cancellation point: from here on only
 * such a one would end the thread. Costs no atomic operation where that was so already. */
static inline int asynchronous_cancel_off(void)
{
	int type;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	if (type != PTHREAD_CANCEL_DEFERRED)
		cancel_note((struct cancel){ .calls = 1, .type = type, .state = -1 });
	return type;
}

/* Ends the thread here if it was cancelled meanwhile, and may be ended at any time. */
static inline void asynchronous_cancel_back(int type)
{
	if (type != PTHREAD_CANCEL_DEFERRED) {
		pthread_setcanceltype(type, NULL);
		nowait_cancel.calls = 0;
	}
}

/* Where a call whose type is the deferred one by now sleeps, which ends the thread if it is
 * cancelled. False: the program's own type is the asynchronous one, as is noted. */
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
