/* pthread_cancel of threads in calls. With the asynchronous type a thread ends inside the call,
 * with the deferred type after the call or at a cancellation point in it. Other threads continue
 * with the same context or file. `cancel libaio` and `cancel syscall` cancel a thread in
 * io_getevents or io_pgetevents, called as a function of the library or by syscall(2). `cancel
 * plain FILE` cancels a thread in plain calls on a file that also has requests.
 */
#include "check.h"
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define ROUNDS 20
#define CALLS 9

static void *ctx;
static int by_number, fd;
static volatile pid_t waiter;
static volatile int type, got, which;
static char *bytes;

static int get_one(struct event *event)
{
	if (by_number)
		return (int)syscall(SYS_io_getevents, ctx, 1L, 1L, event, NULL);
	return io_getevents(ctx, 1, 1, event, NULL);
}

static int get_one_masked(struct event *event)
{
	struct {
		const sigset_t *mask;
		size_t size;
	} kernels;
	sigset_t none;

	sigemptyset(&none);
	kernels.mask = &none;
	kernels.size = 8;
	if (by_number)
		return (int)syscall(SYS_io_pgetevents, ctx, 1L, 1L, event, NULL, &kernels);
	return io_pgetevents(ctx, 1, 1, event, NULL, &none);
}

static void *wait_for_one(void *masked)
{
	struct event event;

	pthread_setcanceltype(type, NULL);
	waiter = gettid();
	got = masked ? get_one_masked(&event) : get_one(&event);
	pthread_testcancel();
	return NULL;
}

static void cancel_in_wait(int how, int has_request, int masked)
{
	struct event event;
	struct iocb poll = { .opcode = 5, .buffer = POLLIN }, *list[] = { &poll };
	pthread_t thread;
	void *result;
	int ends[2];

	CHECK(pipe(ends) == 0);
	poll.fildes = ends[0];
	if (has_request)
		CHECK(io_submit(ctx, 1, list) == 1);
	type = how;
	waiter = got = 0;
	CHECK(pthread_create(&thread, NULL, wait_for_one, masked ? &masked : NULL) == 0);
	until_asleep(getpid(), &waiter);
	CHECK(pthread_cancel(thread) == 0);
	if (how == PTHREAD_CANCEL_DEFERRED)
		CHECK(write(ends[1], "x", 1) == 1);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK(got == (how == PTHREAD_CANCEL_DEFERRED));
	if (how == PTHREAD_CANCEL_ASYNCHRONOUS) {
		if (!has_request)
			CHECK(io_submit(ctx, 1, list) == 1);
		CHECK(write(ends[1], "x", 1) == 1);
		CHECK(get_one(&event) == 1);
	}
	close(ends[0]);
	close(ends[1]);
}

/* The thread cancels itself before its first call, which starts the engine. */
static void *begin_cancelled(void *unused)
{
	pthread_cancel(pthread_self());
	got = by_number ? (int)syscall(SYS_io_setup, 8, &ctx) : io_setup(8, &ctx);
	pthread_testcancel();
	return unused;
}

static void cancel_in_waits(void)
{
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, begin_cancelled, NULL) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED && got == 0 && ctx);
	for (int round = 0; round < ROUNDS; round++) {
		cancel_in_wait(PTHREAD_CANCEL_ASYNCHRONOUS, 1, round % 2);
		cancel_in_wait(PTHREAD_CANCEL_ASYNCHRONOUS, 0, round % 2);
		cancel_in_wait(PTHREAD_CANCEL_DEFERRED, 1, round % 2);
	}
	CHECK(io_destroy(ctx) == 0);
}

static int call(int number)
{
	struct iovec part = { bytes, BLOCK };
	struct stat stat;

	switch (number) {
	case 0:
		return pwrite(fd, bytes, BLOCK, 0) == BLOCK;
	case 1:
		return pread(fd, bytes, BLOCK, 0) == BLOCK;
	case 2:
		return pwritev(fd, &part, 1, BLOCK) == BLOCK;
	case 3:
		return preadv(fd, &part, 1, BLOCK) == BLOCK;
	case 4:
		return fstat(fd, &stat) == 0;
	case 5:
		return fsync(fd) == 0;
	case 6:
		return ftruncate(fd, MANY * BLOCK) == 0;
	case 7:
		return posix_fallocate(fd, 0, MANY * BLOCK) == 0;
	default:
		return close(dup(fd)) == 0;
	}
}

static void *make_calls(void *unused)
{
	pthread_setcanceltype(type, NULL);
	for (;; waiter = 1) {
		CHECK(call(which));
		pthread_testcancel();
	}
	return unused;
}

static void write_by_request(void)
{
	struct iocb request = { .opcode = 1, .fildes = fd, .bytes = BLOCK }, *list[] = { &request };
	struct event event;

	request.buffer = (unsigned long)bytes;
	CHECK(io_submit(ctx, 1, list) == 1);
	take_event(ctx, &event);
	CHECK(event.res == BLOCK);
}

static void cancel_in_calls(const char *path)
{
	pthread_t thread;
	void *result;

	CHECK(io_setup(8, &ctx) == 0);
	CHECK((fd = open(path, O_RDWR | O_CREAT, 0600)) >= 0 && ftruncate(fd, MANY * BLOCK) == 0);
	CHECK((bytes = aligned_alloc(BLOCK, BLOCK)) != NULL);
	memset(bytes, 'c', BLOCK);
	for (int round = 0; round < ROUNDS * CALLS; round++) {
		which = round % CALLS;
		type = round / CALLS % 4 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
		waiter = 0;
		write_by_request();
		CHECK(pthread_create(&thread, NULL, make_calls, NULL) == 0);
		while (waiter == 0)
			sched_yield();
		write_by_request();
		CHECK(pthread_cancel(thread) == 0);
		CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
		for (int number = 0; number < CALLS; number++)
			CHECK(call(number));
	}
	CHECK(io_destroy(ctx) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	by_number = strcmp(argv[1], "syscall") == 0;
	if (argc == 3)
		cancel_in_calls(argv[2]);
	else
		cancel_in_waits();
	return 0;
}
