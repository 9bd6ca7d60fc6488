/* Each case checks a rule of the standard, or of nowait. `conformance PAGE NAME FOLDER` runs one
 * case. It exits with 0, with 1 and the reason, or with 77 if the case cannot run on this machine.
 */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(OLD_SYMBOLS) && defined(__x86_64__)
/* The symbols of programs that were linked with librt before glibc 2.34. */
__asm__(".symver aio_read,aio_read@GLIBC_2.2.5");
__asm__(".symver aio_write,aio_write@GLIBC_2.2.5");
__asm__(".symver aio_fsync,aio_fsync@GLIBC_2.2.5");
__asm__(".symver aio_error,aio_error@GLIBC_2.2.5");
__asm__(".symver aio_return,aio_return@GLIBC_2.2.5");
__asm__(".symver aio_suspend,aio_suspend@GLIBC_2.2.5");
__asm__(".symver aio_cancel,aio_cancel@GLIBC_2.2.5");
__asm__(".symver aio_init,aio_init@GLIBC_2.2.5");
__asm__(".symver lio_listio,lio_listio@GLIBC_2.4");
#endif

/* The libraries that must pass a case: glibc and nowait, or only nowait. */
enum who { CONFORMING, NOWAIT };

void add_case(const char *page, const char *name, enum who who, void (*run)(void));

#define CASE(page, name, who)                                                                  \
	static void case_##page##_##name(void);                                                \
	__attribute__((constructor)) static void add_##page##_##name(void)                     \
	{                                                                                      \
		add_case(#page, #name, who, case_##page##_##name);                             \
	}                                                                                      \
	static void case_##page##_##name(void)

/* These macros evaluate each argument once. If a claim is false, the macro shows `errno`, because
 * most claims are about calls. */
#define CHECK(claim)                                                                           \
	do {                                                                                   \
		if (!(claim))                                                                  \
			fail(__FILE__, __LINE__, #claim);                                      \
	} while (0)
#define EQUAL(seen, expected)                                                                  \
	do {                                                                                   \
		long seen_ = (long)(seen), expected_ = (long)(expected);                       \
		if (seen_ != expected_)                                                        \
			differ(__FILE__, __LINE__, #seen, seen_, expected_);                   \
	} while (0)
#define FAILS(call, error)                                                                     \
	do {                                                                                   \
		EQUAL(call, -1);                                                               \
		EQUAL(errno, error);                                                           \
	} while (0)

_Noreturn void fail(const char *file, int line, const char *claim);
_Noreturn void differ(const char *file, int line, const char *what, long seen, long expected);
_Noreturn void skip(const char *why);

const char *path(const char *name);
/* Makes a file of `len` bytes, each the number of its 4 KiB block, and opens it for reading and
 * writing with `flags`. Returns the descriptor. */
int new_file(const char *name, size_t len, int flags);
struct aiocb transfer(int fd, void *buffer, size_t len, off_t offset);
void by_signal(struct aiocb *block, int signo, int value);
void by_thread(struct aiocb *block, void (*function)(union sigval), void *value);
/* The first function returns the request's error; the second demands success and returns its
 * value. */
int error_at_end(struct aiocb *block);
ssize_t value_at_end(struct aiocb *block);
/* Checks that a request fails with this error, in the call or later: the standard permits both. */
void refused(int called, struct aiocb *block, int error);
void block_signal(int signo);
/* Waits at most half a minute for a blocked signal, and takes it. */
siginfo_t take_signal(int signo);
bool is_pending(int signo);
void count_signals(int signo);
extern volatile sig_atomic_t signals_seen;
pthread_t thread_of(void *(*run)(void *), void *argument);

#endif
