/* Plain calls on descriptors whose files are in nowait's page cache (NOWAIT_CACHE=user).
 *
 *   opens the file         what is cached is written, so that the new descriptor sees it
 *   looks at the file      what is cached is written first, then the call goes on
 *   makes it durable       the same, and an error of that is the call's
 *   changes the file       requests wait meanwhile, and what is cached is dropped after it; a file
 *                          that is not cached is not cached as long as the call goes on
 *   maps the file          the file is the kernel's from then on, also if no request has named it
 *   gives advice           to the cache that has the file
 *
 * For all other files each is a statx(2) while some file is cached, one that changes the file also
 * before, and a look at a word else.
 * Not seen: stdio, which calls the system directly, sendfile, copy_file_range and splice.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cancel.h"
#include "raw.h"
#include "watch.h"

extern unsigned nowait_cached_any HIDDEN;
extern unsigned nowait_may_cache HIDDEN;
extern bool nowait_may_be_cached(int fd) HIDDEN;
extern bool nowait_may_be_changed(int fd) HIDDEN;
extern void nowait_opened(int fd, bool is_cut) HIDDEN;
extern int nowait_settle_file(int fd) HIDDEN;
extern void nowait_settle_files(void) HIDDEN;
extern int nowait_exclude(int fd, void **exclusion) HIDDEN;
extern void nowait_readmit(void *exclusion) HIDDEN;
extern int nowait_map(int fd, void **exclusion) HIDDEN;
extern bool nowait_advise(int fd, off64_t offset, off64_t len, int advice) HIDDEN;

static bool is_any_cached(void)
{
	return __atomic_load_n(&nowait_cached_any, __ATOMIC_RELAXED) && is_watched();
}

/* By the file behind the number, not by the number: it may be a duplicate. */
static bool is_cached(int fd)
{
	return is_any_cached() && UNCANCELLED(nowait_may_be_cached(fd));
}

/* A file that no request has named yet may be cached while the call goes on. */
static bool may_be_changed(int fd)
{
	return __atomic_load_n(&nowait_may_cache, __ATOMIC_RELAXED) && nowait_is_owner() &&
	       UNCANCELLED(nowait_may_be_changed(fd));
}

/* The C library's own of a name, found at its first use. */
static void *found(void **slot, const char *name)
{
	void *next = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (!next) {
		next = dlsym(RTLD_NEXT, name);
		__atomic_store_n(slot, next, __ATOMIC_RELAXED);
	}
	return next;
}

#define NEXT(name)                                                                             \
	({                                                                                     \
		static void *slot;                                                             \
		(__typeof__(&name))found(&slot, #name);                                        \
	})

/* --- opens the file ---------------------------------------------------------------------- */

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
	int fd = NEXT(openat64)(dir, path, flags, mode);

	if (fd >= 0 && is_any_cached())
		UNCANCELLED((nowait_opened(fd, flags & O_TRUNC), true));
	return fd;
}

/* The mode is there only where a file may be made. */
#define OPEN(dir, path, flags)                                                                 \
	mode_t mode = 0;                                                                       \
	if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                             \
		va_list list;                                                                  \
		va_start(list, flags);                                                         \
		mode = va_arg(list, mode_t);                                                   \
		va_end(list);                                                                  \
	}                                                                                      \
	return open_at(dir, path, flags, mode)

int open(const char *path, int flags, ...) { OPEN(AT_FDCWD, path, flags); }
int open64(const char *path, int flags, ...) { OPEN(AT_FDCWD, path, flags); }
int openat(int dir, const char *path, int flags, ...) { OPEN(dir, path, flags); }
int openat64(int dir, const char *path, int flags, ...) { OPEN(dir, path, flags); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int dir, const char *path, int flags) { return open_at(dir, path, flags, 0); }
int __openat64_2(int dir, const char *path, int flags) { return open_at(dir, path, flags, 0); }

int creat64(const char *path, mode_t mode)
{
	return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int creat(const char *path, mode_t mode) { return creat64(path, mode); }

/* --- looks at the file ------------------------------------------------------------------- */

static int settled(int fd) { return is_cached(fd) ? UNCANCELLED(nowait_settle_file(fd)) : 0; }

/* An error stays with the file, for the next sync. */
static void settle(int fd) { settled(fd); }

/* The C library's own: cancellation points, as the public ones are. */
extern ssize_t __read(int fd, void *buffer, size_t len);
extern ssize_t __write(int fd, const void *buffer, size_t len);
extern ssize_t __pread64(int fd, void *buffer, size_t len, off64_t offset);
extern ssize_t __pwrite64(int fd, const void *buffer, size_t len, off64_t offset);
extern void __chk_fail(void) __attribute__((noreturn));

ssize_t read(int fd, void *buffer, size_t len)
{
	settle(fd);
	return __read(fd, buffer, len);
}

ssize_t pread64(int fd, void *buffer, size_t len, off64_t offset)
{
	settle(fd);
	return __pread64(fd, buffer, len, offset);
}

ssize_t pread(int fd, void *buffer, size_t len, off_t offset)
{
	return pread64(fd, buffer, len, offset);
}

ssize_t readv(int fd, const struct iovec *iov, int count)
{
	settle(fd);
	return NEXT(readv)(fd, iov, count);
}

ssize_t preadv64(int fd, const struct iovec *iov, int count, off64_t offset)
{
	settle(fd);
	return NEXT(preadv64)(fd, iov, count, offset);
}

ssize_t preadv(int fd, const struct iovec *iov, int count, off_t offset)
{
	return preadv64(fd, iov, count, offset);
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int count, off64_t offset, int flags)
{
	settle(fd);
	return NEXT(preadv64v2)(fd, iov, count, offset, flags);
}

ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	return preadv64v2(fd, iov, count, offset, flags);
}

/* What fortified programs call: the size of the buffer comes with it. */
ssize_t __read_chk(int fd, void *buffer, size_t len, size_t size)
{
	if (len > size)
		__chk_fail();
	return read(fd, buffer, len);
}

ssize_t __pread64_chk(int fd, void *buffer, size_t len, off64_t offset, size_t size)
{
	if (len > size)
		__chk_fail();
	return pread64(fd, buffer, len, offset);
}

ssize_t __pread_chk(int fd, void *buffer, size_t len, off_t offset, size_t size)
{
	return __pread64_chk(fd, buffer, len, offset, size);
}

off64_t lseek64(int fd, off64_t offset, int whence)
{
	/* Only the end, data and holes depend on the file. */
	if (whence != SEEK_SET && whence != SEEK_CUR)
		settle(fd);
	return checked(raw(SYS_lseek, (long[6]){ fd, offset, whence }));
}

off_t lseek(int fd, off_t offset, int whence) { return lseek64(fd, offset, whence); }

int fstat64(int fd, struct stat64 *stat)
{
	settle(fd);
	return (int)checked(raw(SYS_fstat, (long[6]){ fd, (long)stat }));
}

int fstat(int fd, struct stat *stat)
{
	settle(fd);
	return (int)checked(raw(SYS_fstat, (long[6]){ fd, (long)stat }));
}

int statx(int fd, const char *restrict path, int flags, unsigned mask,
	  struct statx *restrict stat)
{
	if (flags & AT_EMPTY_PATH)
		settle(fd);
	return (int)checked(raw(SYS_statx, (long[6]){ fd, (long)path, flags, mask, (long)stat }));
}

/* Programs built with a C library before 2.33. */
#if defined(__x86_64__) || defined(__aarch64__)
int __fxstat64(int version, int fd, struct stat64 *stat)
{
	return version == 1 || version == 0 ? fstat64(fd, stat) : (int)checked(-EINVAL);
}

int __fxstat(int version, int fd, struct stat *stat)
{
	return version == 1 || version == 0 ? fstat(fd, stat) : (int)checked(-EINVAL);
}
#endif

/* --- makes it durable -------------------------------------------------------------------- */

int fsync(int fd)
{
	int err = settled(fd);
	int ret = NEXT(fsync)(fd);

	return ret == 0 ? (int)checked(err) : ret;
}

int fdatasync(int fd)
{
	int err = settled(fd);
	int ret = NEXT(fdatasync)(fd);

	return ret == 0 ? (int)checked(err) : ret;
}

int sync_file_range(int fd, off64_t offset, off64_t len, unsigned flags)
{
	int err = settled(fd);
	int ret = NEXT(sync_file_range)(fd, offset, len, flags);

	return ret == 0 ? (int)checked(err) : ret;
}

static void settle_all(void)
{
	if (is_any_cached())
		UNCANCELLED((nowait_settle_files(), true));
}

int syncfs(int fd)
{
	settle_all();
	return NEXT(syncfs)(fd);
}

void sync(void)
{
	settle_all();
	NEXT(sync)();
}

/* --- changes the file -------------------------------------------------------------------- */

static long excluding_others(int fd, long nr, const long args[6])
{
	void *exclusion;
	long ret = nowait_exclude(fd, &exclusion);

	if (ret < 0)
		return ret;
	ret = raw(nr, args);
	nowait_readmit(exclusion);
	return ret;
}

/* By the system call itself, which no cancellation of the thread ends half way. */
static long excluding(int fd, long nr, const long args[6])
{
	return UNCANCELLED(excluding_others(fd, nr, args));
}

/* The same for what is a cancellation point. */
static long writing(int fd, long nr, const long args[6])
{
	pthread_testcancel();
	return excluding(fd, nr, args);
}

ssize_t write(int fd, const void *buffer, size_t len)
{
	if (may_be_changed(fd))
		return checked(writing(fd, SYS_write, (long[6]){ fd, (long)buffer, len }));
	return __write(fd, buffer, len);
}

ssize_t pwrite64(int fd, const void *buffer, size_t len, off64_t offset)
{
	if (may_be_changed(fd))
		return checked(writing(fd, SYS_pwrite64,
					 (long[6]){ fd, (long)buffer, len, offset }));
	return __pwrite64(fd, buffer, len, offset);
}

ssize_t pwrite(int fd, const void *buffer, size_t len, off_t offset)
{
	return pwrite64(fd, buffer, len, offset);
}

ssize_t writev(int fd, const struct iovec *iov, int count)
{
	if (may_be_changed(fd))
		return checked(writing(fd, SYS_writev, (long[6]){ fd, (long)iov, count }));
	return NEXT(writev)(fd, iov, count);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int count, off64_t offset)
{
	if (may_be_changed(fd))
		return checked(writing(fd, SYS_pwritev,
					 (long[6]){ fd, (long)iov, count, offset, 0 }));
	return NEXT(pwritev64)(fd, iov, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
	return pwritev64(fd, iov, count, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off64_t offset, int flags)
{
	if (may_be_changed(fd))
		return checked(writing(fd, SYS_pwritev2,
					 (long[6]){ fd, (long)iov, count, offset, 0, flags }));
	return NEXT(pwritev64v2)(fd, iov, count, offset, flags);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	return pwritev64v2(fd, iov, count, offset, flags);
}

int ftruncate64(int fd, off64_t len)
{
	const long args[6] = { fd, len };

	return (int)checked(may_be_changed(fd) ? excluding(fd, SYS_ftruncate, args)
					  : raw(SYS_ftruncate, args));
}

int ftruncate(int fd, off_t len) { return ftruncate64(fd, len); }

int fallocate64(int fd, int mode, off64_t offset, off64_t len)
{
	if (may_be_changed(fd))
		return (int)checked(writing(fd, SYS_fallocate,
					      (long[6]){ fd, mode, offset, len }));
	return NEXT(fallocate64)(fd, mode, offset, len);
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
	return fallocate64(fd, mode, offset, len);
}

static int allocate_excluding_others(int fd, off64_t offset, off64_t len)
{
	void *exclusion;
	int err = nowait_exclude(fd, &exclusion);

	if (err < 0)
		return -err;
	err = NEXT(posix_fallocate64)(fd, offset, len);
	nowait_readmit(exclusion);
	return err;
}

/* Where the file system cannot allocate, the C library writes a byte to each block. */
int posix_fallocate64(int fd, off64_t offset, off64_t len)
{
	if (may_be_changed(fd))
		return UNCANCELLED(allocate_excluding_others(fd, offset, len));
	return NEXT(posix_fallocate64)(fd, offset, len);
}

int posix_fallocate(int fd, off_t offset, off_t len) { return posix_fallocate64(fd, offset, len); }

/* --- maps the file ----------------------------------------------------------------------- */

/* An error of what was cached stays with the file, for the next sync. */
static long map_beside(const long args[6])
{
	void *exclusion;
	long ret;

	nowait_map((int)args[4], &exclusion);
	ret = raw(SYS_mmap, args);
	nowait_readmit(exclusion);
	return ret;
}

void *mmap64(void *address, size_t len, int protection, int flags, int fd, off64_t offset)
{
	const long args[6] = { (long)address, len, protection, flags, fd, offset };

	if (!(flags & MAP_ANONYMOUS) && may_be_changed(fd))
		return (void *)checked(UNCANCELLED(map_beside(args)));
	return (void *)checked(raw(SYS_mmap, args));
}

void *mmap(void *address, size_t len, int protection, int flags, int fd, off_t offset)
{
	return mmap64(address, len, protection, flags, fd, offset);
}

/* --- gives advice ------------------------------------------------------------------------ */

/* What is to be read ahead must not go to the kernel's cache too; no advice is an error. */
int posix_fadvise64(int fd, off64_t offset, off64_t len, int advice)
{
	if (is_cached(fd) && UNCANCELLED(nowait_advise(fd, offset, len, advice)))
		return 0;
	return NEXT(posix_fadvise64)(fd, offset, len, advice);
}

int posix_fadvise(int fd, off_t offset, off_t len, int advice)
{
	return posix_fadvise64(fd, offset, len, advice);
}
