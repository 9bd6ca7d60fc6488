/* The calls of the C library that a preloaded nowait watches.
 *
 * close and its kin: what was remembered of the number is forgotten, and our few descriptors in
 * the application's table survive a program that closes everything. _exit, daemon and exec: what
 * was submitted is in the file first, as if io_submit had written it. syscall: programs that call
 * io_getevents and the like through it. Reads and writes are in plain.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "raw.h"

extern void nowait_watches(void) HIDDEN;
/* Negative: it is ours, with the errno to answer; positive: the errno for close, once closed. */
extern int nowait_closing(int fd) HIDDEN;
extern void nowait_settle(void) HIDDEN;
extern void nowait_leave(void) HIDDEN;
/* It did not become another program: what completed meanwhile is announced now. */
extern void nowait_stays(void) HIDDEN;
extern long nowait_close_range(unsigned first, unsigned last, unsigned flags) HIDDEN;
extern bool nowait_syscall(long nr, const long *args, long *result) HIDDEN;

/* What is registered first runs last, before the C library's own _exit, which is not seen. */
__attribute__((constructor)) static void begin(void)
{
	nowait_watches();
	at_quick_exit(nowait_leave);
}

/* The C library's own: a cancellation point, as close is. */
extern int __close(int fd);

int close(int fd)
{
	int lost = nowait_closing(fd);
	int ret = lost < 0 ? (int)checked(lost) : __close(fd);

	/* As on a network file system: closed, and what was written to it is not in the file. */
	return ret == 0 && lost > 0 ? (int)checked(-lost) : ret;
}

int dup3(int from, int to, int flags)
{
	if (nowait_closing(to) < 0)
		return (int)checked(-EBADF);
	return (int)checked(raw(SYS_dup3, (long[6]){ from, to, flags }));
}

int dup2(int from, int to)
{
	if (nowait_closing(to) < 0)
		return (int)checked(-EBADF);
	/* dup3 refuses equal numbers; dup2 then only checks that the descriptor is open. */
	if (from == to)
		return checked(raw(SYS_fcntl, (long[6]){ from, 1 /* F_GETFD */ })) < 0 ? -1 : to;
	return (int)checked(raw(SYS_dup3, (long[6]){ from, to, 0 }));
}

int close_range(unsigned first, unsigned last, int flags)
{
	return (int)checked(nowait_close_range(first, last, (unsigned)flags));
}

void closefrom(int first)
{
	int before = errno;
	nowait_close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0);
	errno = before;
}

__attribute__((noreturn)) void _exit(int status)
{
	nowait_leave();
	for (;;)
		raw(SYS_exit_group, (long[6]){ status });
}

__attribute__((noreturn)) void _Exit(int status) { _exit(status); }

/* Ends this process inside the C library, past the _exit above; the program goes on in a child,
 * which has nothing to settle. */
int daemon(int keeps_folder, int keeps_output)
{
	int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "daemon");
	int ret;

	if (!next)
		return (int)checked(-ENOSYS);
	nowait_settle();
	ret = next(keeps_folder, keeps_output);
	nowait_stays();
	return ret;
}

static int not_executed(long err)
{
	nowait_stays();
	return (int)checked(err);
}

int execve(const char *path, char *const argv[], char *const envp[])
{
	nowait_settle();
	return not_executed(raw(SYS_execve, (long[6]){ (long)path, (long)argv, (long)envp }));
}

int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

int fexecve(int fd, char *const argv[], char *const envp[])
{
	nowait_settle();
	return not_executed(raw(SYS_execveat, (long[6]){ fd, (long)"", (long)argv, (long)envp,
							 AT_EMPTY_PATH }));
}

/* The search along PATH is the C library's. */
int execvpe(const char *file, char *const argv[], char *const envp[])
{
	int (*next)(const char *, char *const[], char *const[]) =
		(int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execvpe");

	nowait_settle();
	if (next)
		next(file, argv, envp);
	return not_executed(next ? -errno : -ENOSYS);
}

int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

/* The forms with a list of arguments: counted, copied to the stack, and the environment taken
 * from behind the end where the form has one. */
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

/* Callers pass as many arguments as the call has; reading six is what the C library does too. */
long syscall(long nr, ...)
{
	long args[6], result;
	va_list list;

	va_start(list, nr);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(list, long);
	va_end(list);
	switch (nr) {
	case SYS_io_setup:
	case SYS_io_destroy:
	case SYS_io_submit:
	case SYS_io_cancel:
	case SYS_io_getevents:
	case SYS_io_pgetevents:
		if (nowait_syscall(nr, args, &result))
			return checked(result);
		break;
	case SYS_close:
		if (nowait_closing((int)args[0]) < 0)
			return checked(-EBADF);
		break;
	case SYS_close_range:
		return checked(nowait_close_range((unsigned)args[0], (unsigned)args[1],
						  (unsigned)args[2]));
	}
	return checked(raw(nr, args));
}
