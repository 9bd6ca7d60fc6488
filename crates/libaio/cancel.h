/* Cancellation of threads (pthread_cancel): it ends a thread by unwinding its stack, which must not
 * meet the engine's frames. It is acted on before or after them, as by a system call.
 */
#ifndef NOWAIT_CANCEL_H
#define NOWAIT_CANCEL_H

#include <pthread.h>

/* For calls that use no function of the C library that is a cancellation point: from here on only
 * such a one would end the thread. Costs no atomic operation where that was so already. */
static inline int asynchronous_cancel_off(void)
{
	int before;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before);
	return before;
}

/* Ends the thread here if it was cancelled meanwhile, and may be ended at any time. */
static inline void asynchronous_cancel_back(int before)
{
	if (before != PTHREAD_CANCEL_DEFERRED)
		pthread_setcanceltype(before, NULL);
}

/* For calls that may use any function of the C library. */
struct cancel {
	int type, state;
};

static inline struct cancel cancel_off(void)
{
	struct cancel before = { .type = asynchronous_cancel_off() };

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before.state);
	return before;
}

static inline void cancel_back(struct cancel before)
{
	pthread_setcancelstate(before.state, NULL);
	asynchronous_cancel_back(before.type);
}

#endif
