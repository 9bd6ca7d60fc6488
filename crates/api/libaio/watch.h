/* Whether calls of the C library are looked at. */
#ifndef NOWAIT_WATCH_H
#define NOWAIT_WATCH_H

#include <stdbool.h>

#include "raw.h"

/* Null before the first request. */
extern void *nowait_current HIDDEN;
/* The calling process has made the first request, and it is the one that the memory belongs to. */
extern bool nowait_is_watched(void) HIDDEN;
/* Not a child of vfork, whose memory is its parent's. */
extern bool nowait_is_owner(void) HIDDEN;

/* Not in a child of vfork: it has nothing to forget or to settle, and may be killed at any
 * instruction, with whatever it has written there half done. Nor in a child that has not made a
 * request of its own. */
static inline bool is_watched(void)
{
	return __atomic_load_n(&nowait_current, __ATOMIC_ACQUIRE) && nowait_is_watched();
}

#endif
