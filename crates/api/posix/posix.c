/* The symbols of POSIX AIO in the preload library. They have no version: a definition without one
 * satisfies references to any version (GLIBC_2.2.5 in older programs linked with librt, GLIBC_2.34
 * since).
 *
 * The engine starts requests (exports.rs). This file does what only C can do: read a block from a
 * signal handler, be a cancellation point, and run a function of the application on a thread that
 * the function may end.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../libaio/cancel.h"
#include "../libaio/raw.h"

struct call {
	void (*function)(union sigval value);
	union sigval value;
	pthread_attr_t *attributes;
};

/* The functions that return int return the value, or the negative errno. */
extern int nowait_aio_read(struct aiocb *block) HIDDEN;
extern int nowait_aio_write(struct aiocb *block) HIDDEN;
extern int nowait_aio_fsync(bool data_only, struct aiocb *block) HIDDEN;
extern int nowait_aio_cancel(int fd, struct aiocb *block) HIDDEN;
extern int nowait_lio_listio(struct aiocb *const *list, size_t len, struct sigevent *event) HIDDEN;
extern void nowait_begins_not(struct aiocb *block, int error) HIDDEN;
extern unsigned nowait_waiter_claim(void) HIDDEN;
extern void nowait_waiter_give_back(unsigned slot) HIDDEN;
extern const unsigned *nowait_waiter_word(unsigned slot) HIDDEN;
extern bool nowait_waiter_arm(const struct aiocb *const *list, size_t len, unsigned slot) HIDDEN;
extern void nowait_await_notice(const struct aiocb *block) HIDDEN;
extern int nowait_notifier_must_come(void) HIDDEN;
extern void nowait_notifier_comes_not(void) HIDDEN;
extern int nowait_notifier_take(bool is_new, struct call *call) HIDDEN;
extern bool nowait_asked HIDDEN;
extern long nowait_aio_max(void) HIDDEN;
extern long nowait_aio_prio_delta_max(void) HIDDEN;

/* --- threads that run functions of the application (SIGEV_THREAD) ------------------------- */

static void *notifier(void *unused);

/* Makes a thread with these attributes. The new thread starts with all signals blocked. */
static int make_thread(const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	sigset_t all, before;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, attributes, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

static int make_detached_thread(void *(*run)(void *), void *argument)
{
	pthread_attr_t detached;
	int err = pthread_attr_init(&detached);

	if (err == 0) {
		pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
		err = make_thread(&detached, run, argument);
		pthread_attr_destroy(&detached);
	}
	return err;
}

static int make_notifier(void)
{
	int err = make_detached_thread(notifier, NULL);

	if (err != 0)
		nowait_notifier_comes_not();
	return err;
}

/* Calls the application's function with no signal blocked, as glibc does. */
static void make_call(const struct call *call)
{
	sigset_t none;

	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	call->function(call->value);
}

struct own_call {
	struct call call;
	sem_t made;
};

static void *own_thread(void *argument)
{
	struct own_call *own = argument;
	struct call call = own->call;

	/* Wait until pthread_create() has returned: it may still read the attributes, which the
	 * application's function may destroy. */
	while (sem_wait(&own->made) != 0)
		continue;
	sem_destroy(&own->made);
	free(own);
	make_call(&call);
	return NULL;
}

/* If the call has attributes, runs its function in a new thread and returns true. Returns false if
 * there are no attributes, or if no thread can be made: the caller then runs the function. */
static bool has_own_thread(const struct call *call)
{
	struct own_call *own = call->attributes ? malloc(sizeof *own) : NULL;

	if (!own)
		return false;
	own->call = *call;
	sem_init(&own->made, 0, 0);
	if (make_thread(call->attributes, own_thread, own) == 0) {
		sem_post(&own->made);
		return true;
	}
	sem_destroy(&own->made);
	free(own);
	return false;
}

static void *notifier(void *unused)
{
	struct call call;
	sigset_t all;
	int made = nowait_notifier_take(true, &call);

	(void)unused;
	sigfillset(&all);
	while (made >= 0) {
		if (made == 1)
			make_notifier();
		if (!has_own_thread(&call)) {
			make_call(&call);
			/* Undo changes that the function may have made to the thread. */
			pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
			pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
			pthread_sigmask(SIG_SETMASK, &all, NULL);
		}
		made = nowait_notifier_take(false, &call);
	}
	return NULL;
}

/* If the event asks for a thread (SIGEV_THREAD), makes sure that one stands by or is starting. The
 * engine's threads cannot make it later, because they have another descriptor table. */
static int prepare(const struct sigevent *event)
{
	int must;

	if (!event || event->sigev_notify != SIGEV_THREAD)
		return 0;
	must = nowait_notifier_must_come();
	if (must == 1 && make_notifier() != 0)
		must = -EAGAIN;
	return must < 0 ? must : 0;
}

/* --- starting requests -------------------------------------------------------------------- */

static int start(int (*begin)(struct aiocb *block), struct aiocb *block)
{
	int err;

	cancel_off();
	err = prepare(&block->aio_sigevent);
	if (err == 0)
		err = begin(block);
	else
		nowait_begins_not(block, -err);
	cancel_back();
	return (int)checked(err);
}

int aio_read(struct aiocb *block) { return start(nowait_aio_read, block); }
int aio_write(struct aiocb *block) { return start(nowait_aio_write, block); }

static int sync_all(struct aiocb *block) { return nowait_aio_fsync(false, block); }
static int sync_data(struct aiocb *block) { return nowait_aio_fsync(true, block); }

int aio_fsync(int operation, struct aiocb *block)
{
	if (operation != O_SYNC && operation != O_DSYNC)
		return (int)checked(-EINVAL);
	return start(operation == O_SYNC ? sync_all : sync_data, block);
}

int aio_cancel(int fd, struct aiocb *block)
{
	return (int)checked(UNCANCELLED(nowait_aio_cancel(fd, block)));
}

/* Does nothing: in glibc, aio_init tunes glibc's threads. The engine has its own option,
 * NOWAIT_WORKERS. */
void aio_init(const struct aioinit *init) { (void)init; }

/* --- looking and waiting: no lock, no memory, for signal handlers too --------------------- */

/* Notes that the program looks at its requests: the engine may then attempt the next request inside
 * submit again. */
static void asks(void)
{
	if (!__atomic_load_n(&nowait_asked, __ATOMIC_RELAXED))
		__atomic_store_n(&nowait_asked, true, __ATOMIC_RELAXED);
}

/* Returns the error code of a request. If the request has ended, first waits until its notice was
 * sent. */
static int error_of(const struct aiocb *block)
{
	int error;

	asks();
	error = __atomic_load_n(&block->__error_code, __ATOMIC_ACQUIRE);
	if (error != EINPROGRESS)
		nowait_await_notice(block);
	return error;
}

int aio_error(const struct aiocb *block) { return error_of(block); }

ssize_t aio_return(struct aiocb *block)
{
	asks();
	return block->__return_value;
}

static void give_back(void *slot) { nowait_waiter_give_back(*(unsigned *)slot); }

/* The only place in a wait where a cancellation may end the thread: here the thread holds no lock
 * and no memory, and a cleanup handler frees its slot. */
static long sleep_on(const unsigned *word, unsigned seen, const struct timespec *until)
{
	const long args[6] = { (long)word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen,
			       (long)until, 0, FUTEX_BITSET_MATCH_ANY };
	bool is_first = asynchronous_cancel_on();
	long ret = raw(SYS_futex, args);

	asynchronous_cancel_end(is_first);
	return ret;
}

/* Waits until one of the requests has ended; returns 0, -EINTR or -ETIMEDOUT. */
static int wait_for_one(const struct aiocb *const *list, size_t len, const struct timespec *until)
{
	unsigned slot = nowait_waiter_claim();
	const unsigned *word = nowait_waiter_word(slot);
	long ret = 0;

	pthread_cleanup_push(give_back, &slot);
	for (;;) {
		unsigned seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);

		if (!nowait_waiter_arm(list, len, slot)) {
			ret = 0;
			break;
		}
		if (ret == -EINTR || ret == -ETIMEDOUT)
			break;
		ret = sleep_on(word, seen, until);
	}
	pthread_cleanup_pop(1);
	return (int)ret;
}

static bool is_any_over(const struct aiocb *const *list, size_t len)
{
	bool any = false;

	for (size_t i = 0; i < len; i++) {
		if (list[i] && error_of(list[i]) != EINPROGRESS)
			return true;
		any |= list[i] != NULL;
	}
	return !any;
}

/* Turns a time from now into a time of CLOCK_MONOTONIC; returns false if it is invalid. */
static bool time_after(const struct timespec *wait, struct timespec *until)
{
	const long second = 1000000000;

	if (wait->tv_nsec < 0 || wait->tv_nsec >= second)
		return false;
	clock_gettime(CLOCK_MONOTONIC, until);
	if (wait->tv_sec < 0)
		return true;
	if (__builtin_add_overflow(until->tv_sec, wait->tv_sec, &until->tv_sec) ||
	    until->tv_sec > 1L << 40) {
		until->tv_sec = 1L << 40;
		return true;
	}
	until->tv_nsec += wait->tv_nsec;
	if (until->tv_nsec >= second) {
		until->tv_nsec -= second;
		until->tv_sec++;
	}
	return true;
}

int aio_suspend(const struct aiocb *const list[], int len, const struct timespec *timeout)
{
	struct timespec until;
	int ret, type;

	/* aio_suspend is a cancellation point even if it does not wait. */
	pthread_testcancel();
	if (len < 0)
		return (int)checked(-EINVAL);
	if (is_any_over(list, (size_t)len))
		return 0;
	if (timeout && !time_after(timeout, &until))
		return (int)checked(-EINVAL);
	if (timeout && timeout->tv_sec <= 0 && timeout->tv_nsec == 0)
		return (int)checked(-EAGAIN);
	type = asynchronous_cancel_off();
	ret = wait_for_one(list, (size_t)len, timeout ? &until : NULL);
	if (ret == 0)
		is_any_over(list, (size_t)len);
	asynchronous_cancel_back(type);
	return (int)checked(ret == -ETIMEDOUT ? -EAGAIN : ret);
}

/* --- lists -------------------------------------------------------------------------------- */

static bool is_request(const struct aiocb *block)
{
	return block && block->aio_lio_opcode != LIO_NOP;
}

/* If this fails, each request has the error as its outcome. */
static int prepare_list(struct aiocb *const list[], size_t len, const struct sigevent *event)
{
	int err = prepare(event);

	for (size_t i = 0; i < len && err == 0; i++)
		if (is_request(list[i]))
			err = prepare(&list[i]->aio_sigevent);
	for (size_t i = 0; i < len && err != 0; i++)
		if (is_request(list[i]))
			nowait_begins_not(list[i], -err);
	return err;
}

/* Waits for all requests of the list, one after another. Returns 0, -EIO if at least one failed, or
 * -EINTR if a signal ended the wait. */
static int wait_for_all(struct aiocb *const list[], size_t len)
{
	int outcome = 0;

	for (size_t i = 0; i < len; i++) {
		const struct aiocb *block = list[i];

		if (!is_request(block))
			continue;
		while (error_of(block) == EINPROGRESS) {
			int ret = wait_for_one(&block, 1, NULL);

			if (ret < 0)
				return ret;
		}
		if (error_of(block) != 0)
			outcome = -EIO;
	}
	return outcome;
}

int lio_listio(int mode, struct aiocb *const list[], int len, struct sigevent *event)
{
	bool waits = mode == LIO_WAIT;
	int started, waited, type;

	if ((!waits && mode != LIO_NOWAIT) || len < 0 || len > nowait_aio_max())
		return (int)checked(-EINVAL);
	cancel_off();
	started = prepare_list(list, (size_t)len, waits ? NULL : event);
	if (started == 0)
		started = nowait_lio_listio(list, (size_t)len, waits ? NULL : event);
	cancel_back();
	if (!waits || (started < 0 && started != -EIO && started != -EAGAIN))
		return (int)checked(started);
	type = asynchronous_cancel_off();
	waited = wait_for_all(list, (size_t)len);
	asynchronous_cancel_back(type);
	return (int)checked(started < 0 ? started : waited);
}

/* --- the 64-bit names: the same structure ------------------------------------------------- */

int aio_read64(struct aiocb64 *block) { return aio_read((struct aiocb *)block); }
int aio_write64(struct aiocb64 *block) { return aio_write((struct aiocb *)block); }
int aio_fsync64(int op, struct aiocb64 *block) { return aio_fsync(op, (struct aiocb *)block); }
int aio_cancel64(int fd, struct aiocb64 *block) { return aio_cancel(fd, (struct aiocb *)block); }
int aio_error64(const struct aiocb64 *block) { return error_of((const struct aiocb *)block); }
ssize_t aio_return64(struct aiocb64 *block) { return aio_return((struct aiocb *)block); }

int aio_suspend64(const struct aiocb64 *const list[], int len, const struct timespec *timeout)
{
	return aio_suspend((const struct aiocb *const *)list, len, timeout);
}

int lio_listio64(int mode, struct aiocb64 *const list[], int len, struct sigevent *event)
{
	return lio_listio(mode, (struct aiocb *const *)list, len, event);
}

/* --- limits ------------------------------------------------------------------------------- */

/* The C library's own function, under its other name. */
extern long __sysconf(int name);

long sysconf(int name)
{
	switch (name) {
	case _SC_AIO_MAX:
	case _SC_AIO_LISTIO_MAX:
		return nowait_aio_max();
	case _SC_AIO_PRIO_DELTA_MAX:
		return nowait_aio_prio_delta_max();
	}
	return __sysconf(name);
}
