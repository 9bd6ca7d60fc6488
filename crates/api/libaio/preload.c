/* The functions of the C library that the preloaded nowait watches.
 *
 * close and similar calls: the library forgets what it remembered of the number, and its own
 * descriptors in the application's table survive a program that closes everything. _exit, daemon
 * and exec: the library first waits for accepted requests, so that the data of accepted writes are
 * in the files. syscall: programs make these calls, AIO calls and seccomp(2) through it. read: a
 * program may read an eventfd before it looks at the ring of a context in memory.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cancel.h"
#include "raw.h"
#include "settle.h"
#include "wait.h"
#include "watch.h"

extern void nowait_watches(void) HIDDEN;
/* Negative: the descriptor is the library's, and the result is the negative errno to report. */
extern int nowait_closing(int fd) HIDDEN;
extern bool nowait_names_counter(int fd) HIDDEN;
extern void nowait_counter_read(int fd) HIDDEN;
extern long nowait_close_range(unsigned first, unsigned last, unsigned flags) HIDDEN;
extern unsigned nowait_confines(const void *filter) HIDDEN;
extern void nowait_confines_not(unsigned forbidden) HIDDEN;
extern bool nowait_syscall(long nr, const long *args, long *result) HIDDEN;

/* quick_exit(3) runs the function that was registered first last of all, and then the C library's
 * own _exit, which this library does not watch. */
__attribute__((constructor)) static void begin(void)
{
	nowait_watches();
	at_quick_exit(leave);
}

static int closing(int fd) { return is_watched() ? UNCANCELLED(nowait_closing(fd)) : 0; }

#ifdef __GLIBC__
/* The C library's own function, which is a cancellation point as close is. */
extern int __close(int fd);
#else
static int __close(int fd)
{
	static int (*next)(int);

	if (!next)
		next = (int (*)(int))dlsym(RTLD_NEXT, "close");
	return next(fd);
}
#endif

int close(int fd)
{
	int ours = closing(fd);

	return ours < 0 ? (int)checked(ours) : __close(fd);
}

#ifdef __GLIBC__
extern ssize_t __read(int fd, void *data, size_t size);
#else
static ssize_t __read(int fd, void *data, size_t size)
{
	static ssize_t (*next)(int, void *, size_t);

	if (!next)
		next = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	return next(fd, data, size);
}
#endif

/* A program that reads the count of an eventfd may look at the ring of its context next, so the
 * library looks for completions first. This look takes locks. A signal handler that has interrupted
 * a call of the library skips the look, because that call may hold these locks. */
ssize_t read(int fd, void *data, size_t size)
{
	ssize_t count = __read(fd, data, size);

	if (count == (ssize_t)sizeof(uint64_t) && nowait_names_counter(fd) && is_watched() &&
	    !nowait_is_interrupted()) {
		cancel_off();
		nowait_counter_read(fd);
		cancel_back();
	}
	return count;
}

int eventfd_read(int fd, eventfd_t *value)
{
	return read(fd, value, sizeof *value) == (ssize_t)sizeof *value ? 0 : -1;
}

#ifdef __GLIBC__
extern void __chk_fail(void) __attribute__((noreturn));

/* Serves read(3) of programs that were compiled with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *data, size_t size, size_t room)
{
	if (size > room)
		__chk_fail();
	return read(fd, data, size);
}
#endif

int dup3(int from, int to, int flags)
{
	if (closing(to) < 0)
		return (int)checked(-EBADF);
	return (int)checked(raw(SYS_dup3, (long[6]){ from, to, flags }));
}

int dup2(int from, int to)
{
	if (closing(to) < 0)
		return (int)checked(-EBADF);
	/* dup3 refuses equal numbers; dup2 then only checks that the descriptor is open. */
	if (from == to)
		return checked(raw(SYS_fcntl, (long[6]){ from, 1 /* F_GETFD */ })) < 0 ? -1 : to;
	return (int)checked(raw(SYS_dup3, (long[6]){ from, to, 0 }));
}

static long close_all(unsigned first, unsigned last, unsigned flags)
{
	if (!is_watched())
		return raw(SYS_close_range, (long[6]){ first, last, flags });
	return UNCANCELLED(nowait_close_range(first, last, flags));
}

int close_range(unsigned first, unsigned last, int flags)
{
	return (int)checked(close_all(first, last, (unsigned)flags));
}

static void close_unless_ours(long fd)
{
	if (closing((int)fd) == 0)
		raw(SYS_close, (long[6]){ fd });
}

/* Closes all descriptors from `first` on without close_range(2), which old kernels do not have and
 * filters may refuse. Allocates no memory, because a child of vfork may call closefrom. */
static void close_each(int first)
{
	long folder = raw(SYS_openat, (long[6]){ AT_FDCWD, (long)"/proc/self/fd",
						 O_RDONLY | O_DIRECTORY | O_CLOEXEC });
	_Alignas(struct dirent) char list[4096];
	const struct dirent *entry;
	struct rlimit limit;
	long len;

	if (folder < 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		for (rlim_t fd = (rlim_t)first; fd < limit.rlim_cur && fd <= INT_MAX; fd++)
			close_unless_ours((long)fd);
		return;
	}
	while ((len = raw(SYS_getdents64, (long[6]){ folder, (long)list, sizeof list })) > 0) {
		for (long at = 0; at < len; at += entry->d_reclen) {
			entry = (const struct dirent *)(list + at);
			/* atol would take "." for 0. */
			long fd = entry->d_name[0] == '.' ? -1 : atol(entry->d_name);

			if (fd >= first && fd != folder)
				close_unless_ours(fd);
		}
	}
	raw(SYS_close, (long[6]){ folder });
}

void closefrom(int first)
{
	int before = errno;

	first = first < 0 ? 0 : first;
	if (close_all((unsigned)first, ~0u, 0) < 0)
		close_each(first);
	errno = before;
}

__attribute__((noreturn)) void _exit(int status)
{
	leave();
	for (;;)
		raw(SYS_exit_group, (long[6]){ status });
}

__attribute__((noreturn)) void _Exit(int status) { _exit(status); }

/* daemon(3) of the C library ends this process without the _exit above. The program continues in a
 * child, which has no requests to wait for. */
int daemon(int keeps_folder, int keeps_output)
{
	int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "daemon");
	bool was_settled;
	int ret;

	if (!next)
		return (int)checked(-ENOSYS);
	was_settled = settled(nowait_settle);
	ret = next(keeps_folder, keeps_output);
	stays(was_settled);
	return ret;
}

static int execute(long nr, const long args[6])
{
	bool was_settled = settled(nowait_settle);
	long err = raw(nr, args);

	stays(was_settled);
	return (int)checked(err);
}

int execve(const char *path, char *const argv[], char *const envp[])
{
	return execute(SYS_execve, (long[6]){ (long)path, (long)argv, (long)envp });
}

int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

int fexecve(int fd, char *const argv[], char *const envp[])
{
	return execute(SYS_execveat,
		       (long[6]){ fd, (long)"", (long)argv, (long)envp, AT_EMPTY_PATH });
}

int execveat(int folder, const char *path, char *const argv[], char *const envp[], int flags)
{
	return execute(SYS_execveat, (long[6]){ folder, (long)path, (long)argv, (long)envp, flags });
}

/* The C library searches along PATH. */
int execvpe(const char *file, char *const argv[], char *const envp[])
{
	int (*next)(const char *, char *const[], char *const[]) =
		(int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execvpe");
	bool was_settled = settled(nowait_settle);
	int err = ENOSYS;

	if (next) {
		next(file, argv, envp);
		err = errno;
	}
	stays(was_settled);
	return (int)checked(-err);
}

int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

/* The functions of exec(3) with a list of arguments: the macro counts the arguments and copies them
 * to the stack. In execle, `call` then takes the environment from behind the end of the list. */
#define EXEC_LIST(first, call)                                                                 \
	va_list list;                                                                          \
	size_t count = 1;                                                                      \
	va_start(list, first);                                                                 \
	while (va_arg(list, char *))                                                           \
		count++;                                                                       \
	va_end(list);                                                                          \
	char *argv[count + 1];                                                                 \
	argv[0] = (char *)first;                                                               \
	va_start(list, first);                                                                 \
	for (size_t i = 1; i <= count; i++)                                                    \
		argv[i] = va_arg(list, char *);                                                \
	int ret = call;                                                                        \
	va_end(list);                                                                          \
	return ret

int execl(const char *path, const char *arg, ...) { EXEC_LIST(arg, execv(path, argv)); }

int execlp(const char *file, const char *arg, ...) { EXEC_LIST(arg, execvp(file, argv)); }

int execle(const char *path, const char *arg, ...)
{
	EXEC_LIST(arg, execve(path, argv, va_arg(list, char **)));
}

static long on_context(long nr, const long args[6])
{
	long result;

	return nowait_syscall(nr, args, &result) ? result : NOT_OURS;
}

static int take(const struct wait *wait, long min, long nr, struct event *events, void *timeout)
{
	return (int)on_context(SYS_io_getevents, (long[6]){ (long)wait->ctx, min, nr, (long)events,
							    (long)timeout });
}

static int take_masked(const struct wait *wait, long min, long nr, struct event *events,
		       void *timeout)
{
	return (int)on_context(SYS_io_pgetevents,
			       (long[6]){ (long)wait->ctx, min, nr, (long)events, (long)timeout,
					  (long)wait->mask });
}

/* Answers as the functions of libaio do (exports.c); NOT_OURS: call the kernel. */
static long in_its_place(long nr, const long a[6])
{
	const struct wait wait = { nr == SYS_io_getevents ? take : take_masked, (void *)a[0],
				   (void *)a[5] };
	long ret;
	int type;

	switch (nr) {
	case SYS_io_setup:
	case SYS_io_destroy:
	case SYS_io_cancel:
		return UNCANCELLED(on_context(nr, a));
	case SYS_io_submit:
		type = asynchronous_cancel_off();
		ret = on_context(nr, a);
		asynchronous_cancel_back(type);
		return ret;
	case SYS_io_getevents:
	case SYS_io_pgetevents:
		return get_events(&wait, a[1], a[2], (void *)a[3], (void *)a[4]);
	}
	return NOT_OURS;
}

/* Called when the program installs a seccomp filter on itself: from then on the library must not
 * make the calls for which the filter kills the process. */
static long confined(long nr, const long args[6])
{
	unsigned forbidden;
	long ret;

	/* A child of vfork confines only itself, but shares its parent's memory. */
	if (!nowait_is_owner())
		return raw(nr, args);
	forbidden = nowait_confines((const void *)args[2]);
	ret = raw(nr, args);

	/* With TSYNC, the kernel returns the number of a thread to which it could not apply the
	 * filter. */
	if (ret < 0 || (ret > 0 && args[1] & SECCOMP_FILTER_FLAG_TSYNC &&
			!(args[1] & SECCOMP_FILTER_FLAG_NEW_LISTENER)))
		nowait_confines_not(forbidden);
	return ret;
}

/* Callers pass as many arguments as the call has; the C library, too, always reads six. */
long syscall(long nr, ...)
{
	long args[6], result;
	va_list list;

	va_start(list, nr);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(list, long);
	va_end(list);
	switch (nr) {
	case SYS_close:
		if (closing((int)args[0]) < 0)
			return checked(-EBADF);
		break;
	case SYS_close_range:
		return checked(close_all((unsigned)args[0], (unsigned)args[1], (unsigned)args[2]));
#ifdef SYS_dup2
	case SYS_dup2:
		return dup2((int)args[0], (int)args[1]);
#endif
	case SYS_dup3:
		return dup3((int)args[0], (int)args[1], (int)args[2]);
	case SYS_execve:
	case SYS_execveat:
		return execute(nr, args);
	case SYS_exit_group:
		_exit((int)args[0]);
	case SYS_seccomp:
		if (args[0] == SECCOMP_SET_MODE_FILTER)
			return checked(confined(nr, args));
	}
	result = in_its_place(nr, args);
	return checked(result == NOT_OURS ? raw(nr, args) : result);
}
