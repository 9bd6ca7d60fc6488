/* A library for LD_PRELOAD that adds a second thread to a program. The thread sets the group of the
 * process to its current value, forks children that exit at once, and sends signals with an empty
 * handler to random threads. The seed NOWAIT_TEST_DISTURB decides the actions and their order; the
 * thread ends after some thousand steps.
 *
 * A program may rightly treat EINTR from io_getevents as a failure. A signal of this thread or a
 * change of the group makes a waiting io_getevents of the kernel fail with EINTR, even with
 * SA_RESTART. So this library repeats io_getevents with the remaining time.
 *
 * After a program's first pthread_cancel(3), the thread does not set the group again. If a thread
 * is cancelled while it runs glibc's handler for a change of the group, the cancellation unwinds
 * the handler. Then setgid(2) waits for that thread for ever, with nowait and without (glibc 2.36).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS_MAX 5000
#define PAUSE_NS_MAX 2000000
/* Neither signal is queued, and neither has an effect by default. */
#define RESTARTS SIGURG
#define INTERRUPTS SIGWINCH

struct timeout {
	long seconds, nanoseconds;
};

static unsigned long state;
/* About half of the signals have a handler without SA_RESTART. */
static bool interrupts;

static unsigned long random_below(unsigned long bound)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % bound;
}

static void nothing(int signal) { (void)signal; }

static void install(int signal, int flags)
{
	struct sigaction action = { .sa_handler = nothing, .sa_flags = flags };

	sigaction(signal, &action, NULL);
}

static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER;
static bool cancels;
/* The process in which the disturbing thread runs; a forked child has no such thread. */
static pid_t disturbed;

static void change_group(void)
{
	pthread_mutex_lock(&changes);
	if (!cancels && setgid(getgid()) != 0)
		abort();
	pthread_mutex_unlock(&changes);
}

int pthread_cancel(pthread_t thread)
{
	int (*next)(pthread_t) = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_cancel");

	if (getpid() == disturbed) {
		pthread_mutex_lock(&changes);
		cancels = true;
		pthread_mutex_unlock(&changes);
	}
	return next(thread);
}

/* The child exits by _exit(2), which the preload library watches, or by the system call itself. */
static void fork_once(void)
{
	bool raw = random_below(2);
	pid_t child = fork();

	if (child == 0) {
		if (raw)
			syscall(SYS_exit_group, 0);
		_exit(0);
	}
	while (child > 0 && waitpid(child, NULL, 0) == -1 && errno == EINTR)
		;
}

/* Guesses the number of a thread: the threads of a program have numbers close together. A look into
 * /proc would open descriptors, and a program may rely on the numbers of its descriptors.
 */
static void signal_some_thread(void)
{
	int signal = interrupts && random_below(2) ? INTERRUPTS : RESTARTS;

	for (int attempt = 0; attempt < 16; attempt++) {
		pid_t thread = getpid() + (pid_t)random_below(48);

		if (thread != gettid() && tgkill(getpid(), thread, signal) == 0)
			return;
	}
}

static void *disturb(void *unused)
{
	for (int step = 0; step < STEPS_MAX; step++) {
		struct timespec pause = { .tv_nsec = (long)random_below(PAUSE_NS_MAX) };

		nanosleep(&pause, NULL);
		switch (random_below(8)) {
		case 0:
			fork_once();
			break;
		case 1:
		case 2:
			change_group();
			break;
		default:
			signal_some_thread();
		}
	}
	return unused;
}

static void begin(void)
{
	const char *seed = getenv("NOWAIT_TEST_DISTURB");
	pthread_attr_t detached;
	sigset_t all, before;
	pthread_t thread;

	/* Skip seccomp-run, which executes another program: glibc's signal for a change of the
	 * group may be pending across execve(2), and would kill the executed program. */
	if (!seed || strcmp(program_invocation_short_name, "seccomp-run") == 0)
		return;
	/* The product spreads neighbouring seeds; xorshift64 must not start from 0. */
	state = (strtoul(seed, NULL, 10) + 1) * 0x9e3779b97f4a7c15ul | 1;
	interrupts = !getenv("NOWAIT_TEST_DISTURB_RESTARTS");
	disturbed = getpid();
	install(RESTARTS, SA_RESTART);
	install(INTERRUPTS, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &detached, disturb, NULL) != 0)
		abort();
	pthread_attr_destroy(&detached);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

typedef int entry(int argc, char **argv, char **environment);

static entry *program;

static int begin_with(int argc, char **argv, char **environment)
{
	begin();
	return program(argc, argv, environment);
}

/* Starts the thread right before the program's main function, so that constructors run without it.
 * (A constructor of QEMU registers handlers of fork(2) before it makes the locks that the handlers
 * take.) */
int __libc_start_main(entry *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
		      void (*end)(void), void *stack)
{
	int (*next)(entry *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *) =
		(__typeof__(next))dlsym(RTLD_NEXT, "__libc_start_main");

	program = main;
	return next(begin_with, argc, argv, init, fini, end, stack);
}

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000 + now.tv_nsec;
}

typedef int waits(void *ctx, long min, long nr, void *events, struct timeout *timeout, void *mask);

static int wait_again(waits *next, void *ctx, long min, long nr, void *events,
		      const struct timeout *timeout, void *mask)
{
	long begun = now_ns();
	struct timeout left;
	int ret;

	if (!timeout || timeout->seconds < 0 || timeout->seconds > 1000000 ||
	    timeout->nanoseconds < 0) {
		do
			ret = next(ctx, min, nr, events, (struct timeout *)timeout, mask);
		while (ret == -EINTR);
		return ret;
	}
	left = *timeout;
	while ((ret = next(ctx, min, nr, events, &left, mask)) == -EINTR) {
		long ns = timeout->seconds * 1000000000 + timeout->nanoseconds;

		ns -= now_ns() - begun;
		left.seconds = ns > 0 ? ns / 1000000000 : 0;
		left.nanoseconds = ns > 0 ? ns % 1000000000 : 0;
	}
	return ret;
}

/* Finds the library's own function `name`. io_getevents takes five arguments, and ignores the sixth
 * argument of `waits`. */
static waits *found(const char *name, const char *version)
{
	void *next = dlvsym(RTLD_NEXT, name, version);

	if (!next)
		abort();
	return (waits *)next;
}

int io_getevents(void *ctx, long min, long nr, void *events, struct timeout *timeout)
{
	waits *next = found("io_getevents", "LIBAIO_0.4");

	return wait_again(next, ctx, min, nr, events, timeout, NULL);
}
