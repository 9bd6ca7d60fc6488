/* Decides if this library watches the program's calls of the C library. */
#ifndef NOWAIT_WATCH_H
#define NOWAIT_WATCH_H

#include <stdbool.h>

#include "raw.h"

/* Null until the process first uses libaio or POSIX AIO. */
extern void *nowait_current HIDDEN;
/* True if the calling process has begun to use libaio or POSIX AIO, and owns its memory. */
extern bool nowait_is_watched(void) HIDDEN;
/* False in a child of vfork, whose memory is its parent's. */
extern bool nowait_is_owner(void) HIDDEN;

/* False in a child of vfork: the child has nothing to forget or to complete, and may be killed at
 * any instruction, with the library's state half changed. False also in a forked child that has not
 * used libaio or POSIX AIO itself. */
static inline bool is_watched(void)
{
	return __atomic_load_n(&nowait_current, __ATOMIC_ACQUIRE) && nowait_is_watched();
}

#endif
