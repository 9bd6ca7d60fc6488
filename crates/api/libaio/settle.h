/* Waits for accepted requests before the process ends, or tries to become another program. */
#ifndef NOWAIT_SETTLE_H
#define NOWAIT_SETTLE_H

#include "cancel.h"
#include "watch.h"

extern bool nowait_is_interrupted(void) HIDDEN;
extern void nowait_settle(bool is_interrupted) HIDDEN;
extern bool nowait_is_settled(void) HIDDEN;
/* Number of this thread's calls that have settled (waited for accepted requests) and not returned;
 * 0 once a signal handler on top of them has submitted a request. */
extern unsigned nowait_settlements(void) HIDDEN;
/* Settles, and writes the report if NOWAIT_REPORT asks for one. */
extern void nowait_leave(bool is_interrupted) HIDDEN;
/* Called when the process goes on, for example after an exec that failed: POSIX AIO sends the
 * notices of completions that it has held back. */
extern void nowait_stays(void) HIDDEN;

/* Calls `settle` and returns true. If calls are not watched (watch.h), only returns false. */
static inline bool settled(void (*settle)(bool is_interrupted))
{
	bool is_interrupted = nowait_is_interrupted();

	if (!is_watched())
		return false;
	/* Signal handlers may run before `settle` returns: requests that they submit must complete,
	 * too. */
	do
		UNCANCELLED((settle(is_interrupted), true));
	while (!nowait_is_settled());
	return true;
}

static inline void stays(bool was_settled)
{
	if (was_settled)
		UNCANCELLED((nowait_stays(), true));
}

/* Called before a handler of the program runs on top of `settlements` calls that have settled. It
 * may leave by longjmp(3) or end the thread: other threads must not wait for these calls. */
static inline void unsettled(unsigned settlements)
{
	for (; settlements > 0; settlements--)
		stays(true);
}

/* Called before a signal handler returns. The handler may have interrupted `settlements` calls that
 * have settled, perhaps after their last look, just before the process becomes another program. */
static inline void settled_again(unsigned settlements)
{
	while (nowait_settlements() < settlements && settled(nowait_settle))
		;
}

/* Called as the process ends. If calls are watched, no handler of the program runs on this thread
 * from here on, as in exit_group(2): a request that a handler submitted after the last look would
 * not complete.
 */
static inline void leave(void)
{
	bool is_interrupted = nowait_is_interrupted();

	if (!is_watched())
		return;
	nowait_begin();
	UNCANCELLED((nowait_leave(is_interrupted), true));
}

#endif
