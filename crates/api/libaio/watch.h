/* Whether calls of the C library are looked at. */
#ifndef NOWAIT_WATCH_H
#define NOWAIT_WATCH_H

#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "raw.h"

/* Null before the first request. */
extern void *nowait_current HIDDEN;
/* The process that this memory belongs to. */
extern pid_t nowait_owner HIDDEN;

static inline bool is_owner(void)
{
	return nowait_owner == (pid_t)raw(SYS_getpid, (long[6]){ 0 });
}

/* Not in a child of vfork, whose memory is its parent's: it has nothing to forget or to settle, and
 * may be killed at any instruction, with whatever it has written there half done. */
static inline bool is_watched(void)
{
	return __atomic_load_n(&nowait_current, __ATOMIC_ACQUIRE) && is_owner();
}

#endif
