/* Waits for events on a thread that pthread_cancel(3) may cancel during the wait. */
#ifndef NOWAIT_WAIT_H
#define NOWAIT_WAIT_H

#include <stdbool.h>
#include <time.h>

#include "cancel.h"

struct event {
	void *data, *obj;
	long res, res2;
};

struct timeout {
	long seconds, nanoseconds;
};

/* The function that takes events, and two of its arguments. */
struct wait {
	int (*take)(const struct wait *wait, long min, long nr, struct event *events,
		    void *timeout);
	void *ctx, *mask;
};

static inline long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* For a thread with the asynchronous cancellation type. While the thread sleeps inside the engine's
 * frames, it cannot be cancelled: so it returns from them every 10 ms. */
static inline int wait_in_slices(const struct wait *wait, long min, long nr, struct event *events,
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
		ret = wait->take(wait, min - taken, nr - taken, events + taken, &part);
		asynchronous_cancel_back(PTHREAD_CANCEL_ASYNCHRONOUS);
		asynchronous_cancel_off();
		if (ret < 0)
			return taken > 0 ? (int)taken : ret;
		taken += ret;
		if (taken >= min || left <= 0)
			return (int)taken;
	}
}

static inline int get_events(const struct wait *wait, long min, long nr, void *events,
			     void *timeout)
{
	int type = asynchronous_cancel_off();
	int ret;

	if (type == PTHREAD_CANCEL_DEFERRED || min <= 0 || min > nr)
		ret = wait->take(wait, min, nr, events, timeout);
	else
		ret = wait_in_slices(wait, min, nr, events, timeout);
	asynchronous_cancel_back(type);
	return ret;
}

#endif
