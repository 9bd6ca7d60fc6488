/* Decides if calls of the C library are watched. */
#ifndef NOWAIT_WATCH_H
#define NOWAIT_WATCH_H

#include <stdbool.h>

#include "raw.h"

/* Null before the first request. */
extern void *nowait_current HIDDEN;
/* True if the calling process has made a request and owns its memory. */
extern bool nowait_is_watched(void) HIDDEN;
/* False in a child of vfork, whose memory is its parent's. */
extern bool nowait_is_owner(void) HIDDEN;

/* False in a child of vfork: it has nothing to forget or to complete, and may be killed at any
 * instruction, with the library's state half changed. False also in a child that has made no
 * request of its own. */
static inline bool is_watched(void)
{
	return __atomic_load_n(&nowait_current, __ATOMIC_ACQUIRE) && nowait_is_watched();
}

#endif
