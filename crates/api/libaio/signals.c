/* The program's signal handlers run between calls of the library. Inside a call, `arrives` runs
 * only handlers of faults, such as SIGSEGV. The kernel calls `arrives`, which asks the engine when
 * to run the program's handler.
 *
 * abort(3) ends a process by SIGABRT, also if code of the C library calls abort(3). So `arrives` is
 * installed for SIGABRT even if the program has no handler for it, and waits for accepted requests
 * before the process ends.
 *
 * The kernel keeps the signal actions, except for the program's handler and two of its flags,
 * SA_SIGINFO and SA_RESETHAND, which this file keeps. A child of vfork shares this memory but has
 * its own handlers; actions that it installs go to the kernel unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "cancel.h"
#include "settle.h"
#include "watch.h"

/* Negative: the kernel delivers the signal again when the interrupted call of the library ends. */
extern long nowait_signal_arrives(int signal, const siginfo_t *info, sigset_t *mask) HIDDEN;
extern void nowait_signal_handled(long depth, const sigset_t *mask) HIDDEN;
/* The C library's own sigaction, which also knows the signals that the C library reserves. */
extern int __sigaction(int signal, const struct sigaction *action, struct sigaction *before);

typedef void (*action_t)(int signal, siginfo_t *info, void *context);

static struct program {
	action_t handler;
	int flags;
} program[_NSIG];

static pid_t process(void) { return (pid_t)raw(SYS_getpid, (long[6]){ 0 }); }

static action_t handler_of(int signal)
{
	return __atomic_load_n(&program[signal].handler, __ATOMIC_ACQUIRE);
}

static int flags_of(int signal)
{
	return __atomic_load_n(&program[signal].flags, __ATOMIC_RELAXED);
}

/* `ends`: the program has no handler, and the process ends when `arrives` returns. Otherwise the
 * program's handler has returned, and abort(3), if the signal came from it, ends the process. */
static void aborts(bool ends)
{
	const struct sigaction usual = { .sa_handler = SIG_DFL };

	if (!ends) {
		stays(settled(nowait_settle));
		return;
	}
	leave();
	__sigaction(SIGABRT, &usual, NULL);
	raw(SYS_tgkill, (long[6]){ process(), raw(SYS_gettid, (long[6]){ 0 }), SIGABRT });
}

/* Runs the program's handler with the program's own cancellation type and state, which an
 * interrupted call of the library may have changed. A further signal may arrive meanwhile: its
 * handler finds either the program's values in `nowait_cancel`, or these values in effect. */
static void handle(action_t handler, int signal, siginfo_t *info, void *context)
{
	const struct cancel had = nowait_cancel;
	int type, state;

	if (had.calls == 0) {
		handler(signal, info, context);
		return;
	}
	if (had.state >= 0)
		pthread_setcancelstate(had.state, &state);
	pthread_setcanceltype(had.type, &type);
	nowait_cancel.calls = 0;
	handler(signal, info, context);
	cancel_note(had);
	pthread_setcanceltype(type, NULL);
	if (had.state >= 0)
		pthread_setcancelstate(state, NULL);
}

/* Makes the default action the program's own, for a handler with SA_RESETHAND. For SIGABRT, the
 * kernel keeps `arrives`. */
static void reset(int signal)
{
	struct sigaction usual;

	if (signal == SIGABRT && nowait_is_owner()) {
		__atomic_store_n(&program[signal].handler, NULL, __ATOMIC_RELEASE);
		return;
	}
	__sigaction(signal, NULL, &usual);
	usual.sa_handler = SIG_DFL;
	__sigaction(signal, &usual, NULL);
}

static void arrives(int signal, siginfo_t *info, void *context)
{
	sigset_t *mask = &((ucontext_t *)context)->uc_sigmask;
	long depth = nowait_signal_arrives(signal, info, mask);
	unsigned settlements = nowait_settlements();
	action_t handler = handler_of(signal);

	if (depth < 0)
		return;
	if (flags_of(signal) & SA_RESETHAND)
		reset(signal);
	if (handler && depth > 0) {
		handler(signal, info, context);
	} else if (handler) {
		unsettled(settlements);
		handle(handler, signal, info, context);
	}
	settled_again(settlements);
	if (signal == SIGABRT)
		aborts(!handler);
	nowait_signal_handled(depth, mask);
}

static bool is_ours(const struct sigaction *action)
{
	return action->sa_flags & SA_SIGINFO && action->sa_sigaction == arrives;
}

static bool is_handled(const struct sigaction *action)
{
	return action->sa_flags & SA_SIGINFO ||
	       (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

/* Returns true if the kernel is to get `arrives` in place of this action. */
static bool is_taken(int signal, const struct sigaction *action)
{
	if (!is_handled(action))
		return signal == SIGABRT && action->sa_handler == SIG_DFL;
	return !is_ours(action);
}

/* Turns the kernel's action into the action that the program has installed. */
static void show(struct sigaction *action, action_t handler, int flags)
{
	if (is_ours(action)) {
		action->sa_sigaction = handler;
		action->sa_flags = (action->sa_flags & ~SA_SIGINFO) | flags;
	}
}

__attribute__((constructor)) static void await_abort(void)
{
	struct sigaction now;

	if (__sigaction(SIGABRT, NULL, &now) == 0 && is_taken(SIGABRT, &now))
		sigaction(SIGABRT, &now, NULL);
}

int sigaction(int signal, const struct sigaction *action, struct sigaction *before)
{
	action_t old_handler;
	struct sigaction ours;
	int old_flags, ret;

	if (signal <= 0 || signal >= _NSIG)
		return (int)checked(-EINVAL);
	old_handler = handler_of(signal);
	old_flags = flags_of(signal);
	if (action && is_taken(signal, action) && nowait_is_owner()) {
		ours = *action;
		/* Store the flags first, so that a signal that arrives now finds a handler that was
		 * installed. */
		__atomic_store_n(&program[signal].flags,
				 action->sa_flags & (int)(SA_SIGINFO | SA_RESETHAND),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&program[signal].handler, action->sa_sigaction, __ATOMIC_RELEASE);
		ours.sa_sigaction = arrives;
		ours.sa_flags = (action->sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
		action = &ours;
	}
	ret = __sigaction(signal, action, before);
	if (ret == 0 && before)
		show(before, old_handler, old_flags);
	return ret;
}

/* The older functions: the C library installs the handler with the flags that each function
 * implies. Then `installed` installs the handler again through sigaction. */
typedef void (*handler_t)(int signal);

static handler_t installed(handler_t (*install)(int, handler_t), int signal, handler_t handler)
{
	struct sigaction now;
	handler_t old, before;

	if (!install || signal <= 0 || signal >= _NSIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	old = (handler_t)(void *)handler_of(signal);
	before = install(signal, handler);
	if (before != SIG_ERR && __sigaction(signal, NULL, &now) == 0 && is_taken(signal, &now))
		sigaction(signal, &now, NULL);
	return before == (handler_t)(void *)arrives ? old : before;
}

#define OLDER(name)                                                                            \
	handler_t name(int signal, handler_t handler)                                          \
	{                                                                                      \
		static void *found;                                                            \
		if (!found)                                                                    \
			found = dlsym(RTLD_NEXT, #name);                                       \
		return installed((handler_t(*)(int, handler_t))found, signal, handler);        \
	}

OLDER(signal)
OLDER(bsd_signal)
OLDER(sysv_signal)
OLDER(__sysv_signal)
OLDER(ssignal)
OLDER(sigset)
