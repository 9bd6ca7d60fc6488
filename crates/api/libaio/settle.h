/* What was submitted is done first, before something ends the process or tries to. */
#ifndef NOWAIT_SETTLE_H
#define NOWAIT_SETTLE_H

#include "cancel.h"
#include "watch.h"

extern bool nowait_is_interrupted(void) HIDDEN;
extern void nowait_settle(bool is_interrupted) HIDDEN;
extern bool nowait_is_settled(void) HIDDEN;
/* Calls of this thread that have settled, and are not over; none is when a handler on top of them
 * has submitted. */
extern unsigned nowait_settlements(void) HIDDEN;
/* With a report. */
extern void nowait_leave(bool is_interrupted) HIDDEN;
/* It did not become another program: what completed meanwhile is announced now. */
extern void nowait_stays(void) HIDDEN;

/* False: nothing was submitted. */
static inline bool settled(void (*settle)(bool is_interrupted))
{
	bool is_interrupted = nowait_is_interrupted();

	if (!is_watched())
		return false;
	/* Handlers run before it returns. What one of them has submitted is to be done, too. */
	do
		UNCANCELLED((settle(is_interrupted), true));
	while (!nowait_is_settled());
	return true;
}

/* Before a handler returns, which may have interrupted so many calls that have settled: perhaps
 * behind their last look, and right before the process becomes another program. */
static inline void settled_again(unsigned settlements)
{
	while (nowait_settlements() < settlements && settled(nowait_settle))
		;
}

/* As the process ends. What comes from here on finds no handler any more, as in exit_group(2): what
 * one would submit behind the last look would not be done.
 */
static inline void leave(void)
{
	bool is_interrupted = nowait_is_interrupted();

	if (!is_watched())
		return;
	nowait_begin();
	UNCANCELLED((nowait_leave(is_interrupted), true));
}

static inline void stays(bool was_settled)
{
	if (was_settled)
		UNCANCELLED((nowait_stays(), true));
}

#endif
