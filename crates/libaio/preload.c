/* The calls of the C library that a preloaded nowait watches.
 *
 * close and its kin: our few descriptors in the application's table must survive a program that
 * closes everything. syscall: programs that call io_getevents and the like through it. All make
 * the system call themselves: no cancellation point is added, nothing is looked up by dlsym.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/syscall.h>

#define HIDDEN __attribute__((visibility("hidden")))

extern bool nowait_is_ours(int fd) HIDDEN;
extern long nowait_close_range(unsigned first, unsigned last, unsigned flags) HIDDEN;
extern bool nowait_syscall(long nr, const long *args, long *result) HIDDEN;

static long raw(long nr, const long a[6])
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = a[3];
	register long r8 __asm__("r8") = a[4];
	register long r9 __asm__("r9") = a[5];
	long ret;
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a[0];
	register long x1 __asm__("x1") = a[1];
	register long x2 __asm__("x2") = a[2];
	register long x3 __asm__("x3") = a[3];
	register long x4 __asm__("x4") = a[4];
	register long x5 __asm__("x5") = a[5];
	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
#else
#error "system calls of this architecture are not known"
#endif
}

static long checked(long ret)
{
	if (ret < 0 && ret > -4096) {
		errno = (int)-ret;
		return -1;
	}
	return ret;
}

/* The C library's close, dup2 and dup3 are found by the linker: they are cancellation points or
 * aliases that other code expects to behave as they do. */
extern int __close(int fd);

int close(int fd)
{
	if (nowait_is_ours(fd))
		return (int)checked(-EBADF);
	return __close(fd);
}

int dup3(int from, int to, int flags)
{
	if (nowait_is_ours(to) || nowait_is_ours(from))
		return (int)checked(-EBADF);
	return (int)checked(raw(SYS_dup3, (long[6]){ from, to, flags }));
}

int dup2(int from, int to)
{
	if (nowait_is_ours(to) || nowait_is_ours(from))
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
		if (nowait_is_ours((int)args[0]))
			return checked(-EBADF);
		break;
	case SYS_close_range:
		return checked(nowait_close_range((unsigned)args[0], (unsigned)args[1],
						  (unsigned)args[2]));
	}
	return checked(raw(nr, args));
}
