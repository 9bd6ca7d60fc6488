/* The C code of the preload library for a simulated machine: posix.c, and the steps of preload.c
 * before and after exec and before _exit. The simulated syscall(2) answers its system calls, and
 * the name of sysconf stays the C library's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#define NOWAIT_RAW_H
#define HIDDEN __attribute__((visibility("hidden")))

static long raw(long nr, const long a[6])
{
	long ret = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);

	return ret == -1 ? -errno : ret;
}

static long checked(long ret)
{
	if (ret < 0 && ret > -4096) {
		errno = (int)-ret;
		return -1;
	}
	return ret;
}

#define sysconf simulated_sysconf
#include "../../../api/posix/posix.c"

__thread struct cancel nowait_cancel;

#include "../../../api/libaio/settle.h"

void simulated_leave(void) { leave(); }

bool simulated_settle(void) { return settled(nowait_settle); }

void simulated_stays(bool was_settled) { stays(was_settled); }
