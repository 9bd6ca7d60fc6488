/* aio.h: notifications of the end of a request, by signals and threads. */
#include "check.h"

#include <limits.h>
#include <sys/syscall.h>

#define BLOCK 4096
#define MANY 64

static char buffer[MANY][BLOCK];

static struct aiocb read_of(int fd, int number)
{
	return transfer(fd, buffer[number], BLOCK, (off_t)number * BLOCK);
}

CASE(aio_h, sigev_signal_queues_the_signal_with_its_value, CONFORMING)
{
	int fd = new_file("file", BLOCK, 0);
	struct aiocb block = read_of(fd, 0);

	block_signal(SIGRTMIN + 3);
	by_signal(&block, SIGRTMIN + 3, 1234);
	EQUAL(aio_read(&block), 0);
	siginfo_t info = take_signal(SIGRTMIN + 3);
	EQUAL(aio_error(&block), 0);
	EQUAL(info.si_code, SI_ASYNCIO);
	EQUAL(info.si_value.sival_int, 1234);
	EQUAL(info.si_pid, getpid());
	EQUAL(info.si_uid, getuid());
}

CASE(aio_h, sigev_signal_queues_one_for_each_request, CONFORMING)
{
	static struct aiocb blocks[MANY];
	int fd = new_file("file", MANY * BLOCK, 0);
	uint64_t seen = 0;

	block_signal(SIGRTMIN);
	for (int i = 0; i < MANY; i++) {
		blocks[i] = read_of(fd, i);
		by_signal(&blocks[i], SIGRTMIN, i);
		EQUAL(aio_read(&blocks[i]), 0);
	}
	for (int i = 0; i < MANY; i++) {
		int number = take_signal(SIGRTMIN).si_value.sival_int;

		EQUAL(aio_error(&blocks[number]), 0);
		EQUAL(aio_return(&blocks[number]), BLOCK);
		seen |= (uint64_t)1 << number;
	}
	EQUAL(seen, -1);
	CHECK(!is_pending(SIGRTMIN));
}

static siginfo_t handled;
static struct aiocb in_handler;

static void on_signal(int signo, siginfo_t *info, void *context)
{
	(void)signo, (void)context;
	if (aio_error(&in_handler) == 0 && aio_return(&in_handler) == BLOCK)
		handled = *info;
	signals_seen = 1;
}

CASE(aio_h, a_handler_sees_the_outcome, CONFORMING)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	sigset_t none;

	EQUAL(sigaction(SIGUSR2, &action, NULL), 0);
	block_signal(SIGUSR2);
	in_handler = read_of(new_file("file", BLOCK, 0), 0);
	by_signal(&in_handler, SIGUSR2, 42);
	EQUAL(aio_read(&in_handler), 0);
	sigemptyset(&none);
	while (!signals_seen)
		sigsuspend(&none);
	EQUAL(handled.si_value.sival_int, 42);
	EQUAL(handled.si_code, SI_ASYNCIO);
}

CASE(aio_h, sigev_none_notifies_no_thread, CONFORMING)
{
	int fd = new_file("file", BLOCK, 0);
	struct aiocb block = read_of(fd, 0);

	block_signal(SIGRTMIN);
	by_signal(&block, SIGRTMIN, 1);
	block.aio_sigevent.sigev_notify = SIGEV_NONE;
	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), BLOCK);
	CHECK(!is_pending(SIGRTMIN));
}

/* The values that the notification functions saw. The main thread checks them. */
static struct seen {
	pthread_mutex_t lock;
	pthread_cond_t news;
	int calls, stack_kib, file, tid_count;
	bool is_detached, signals_open, is_over;
	void *value;
	pid_t tids[4096];
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER };
static struct aiocb *told;

static void note(union sigval value)
{
	pid_t tid = (pid_t)syscall(SYS_gettid);
	pthread_attr_t attributes;
	sigset_t mask;
	size_t stack;
	int detached, i;
	char bytes[16];

	pthread_getattr_np(pthread_self(), &attributes);
	pthread_attr_getstacksize(&attributes, &stack);
	pthread_attr_getdetachstate(&attributes, &detached);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	pthread_mutex_lock(&seen.lock);
	seen.value = value.sival_ptr;
	seen.stack_kib = (int)(stack >> 10);
	seen.is_detached = detached == PTHREAD_CREATE_DETACHED;
	seen.signals_open = !sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGRTMIN);
	seen.is_over = told && aio_error(told) == 0;
	seen.file = told ? (int)pread(told->aio_fildes, bytes, sizeof bytes, 0) : 0;
	for (i = 0; i < seen.tid_count && seen.tids[i] != tid; i++)
		;
	if (i == seen.tid_count)
		seen.tids[seen.tid_count++] = tid;
	seen.calls++;
	pthread_cond_signal(&seen.news);
	pthread_mutex_unlock(&seen.lock);
}

static void await_calls(int calls)
{
	pthread_mutex_lock(&seen.lock);
	while (seen.calls < calls)
		pthread_cond_wait(&seen.news, &seen.lock);
	pthread_mutex_unlock(&seen.lock);
}

CASE(aio_h, sigev_thread_calls_the_function_in_another_thread, CONFORMING)
{
	struct aiocb block = read_of(new_file("file", BLOCK, 0), 0);

	told = &block;
	by_thread(&block, note, &block);
	EQUAL(aio_read(&block), 0);
	await_calls(1);
	CHECK(seen.value == &block && seen.is_over && seen.signals_open && seen.is_detached);
	CHECK(seen.tids[0] != syscall(SYS_gettid));
}

CASE(aio_h, sigev_thread_sees_the_descriptors_of_the_process, CONFORMING)
{
	struct aiocb first = read_of(new_file("first", BLOCK, 0), 0);

	by_thread(&first, note, NULL);
	EQUAL(aio_read(&first), 0);
	await_calls(1);
	struct aiocb second = read_of(new_file("second", BLOCK, 0), 0);
	told = &second;
	by_thread(&second, note, NULL);
	EQUAL(aio_read(&second), 0);
	await_calls(2);
	EQUAL(seen.file, 16);
}

CASE(aio_h, sigev_thread_uses_the_attributes, CONFORMING)
{
	struct aiocb block = read_of(new_file("file", BLOCK, 0), 0);
	/* The library's thread that starts the notification's thread may still read the attributes
	 * while the notification's function runs. */
	static pthread_attr_t attributes;

	EQUAL(pthread_attr_init(&attributes), 0);
	EQUAL(pthread_attr_setstacksize(&attributes, 3 << 20), 0);
	EQUAL(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED), 0);
	for (int i = 1; i <= 20; i++) {
		by_thread(&block, note, &block);
		block.aio_sigevent.sigev_notify_attributes = &attributes;
		EQUAL(aio_read(&block), 0);
		await_calls(i);
		EQUAL(seen.stack_kib, 3 << 10);
		CHECK(seen.is_detached && seen.signals_open);
	}
}

static pthread_barrier_t barrier;

static void meet(union sigval value)
{
	pthread_barrier_wait(&barrier);
	note(value);
}

CASE(aio_h, functions_may_wait_for_each_other, CONFORMING)
{
	enum { MEETING = 20 };
	static struct aiocb blocks[MEETING];
	int fd = new_file("file", MEETING * BLOCK, 0);

	EQUAL(pthread_barrier_init(&barrier, NULL, MEETING), 0);
	for (int i = 0; i < MEETING; i++) {
		blocks[i] = read_of(fd, i);
		by_thread(&blocks[i], meet, NULL);
		EQUAL(aio_read(&blocks[i]), 0);
	}
	await_calls(MEETING);
}

static void note_and_exit(union sigval value)
{
	note(value);
	pthread_exit(NULL);
}

static void note_and_be_cancelled(union sigval value)
{
	note(value);
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

CASE(aio_h, a_function_may_end_its_thread, CONFORMING)
{
	struct aiocb block = read_of(new_file("file", BLOCK, 0), 0);

	for (int i = 1; i <= 50; i++) {
		by_thread(&block, i % 2 ? note_and_exit : note_and_be_cancelled, NULL);
		EQUAL(aio_read(&block), 0);
		await_calls(i);
		EQUAL(error_at_end(&block), 0);
	}
}

static void note_and_read_again(union sigval value)
{
	struct aiocb *block = value.sival_ptr;

	if (aio_return(block) == BLOCK && seen.calls < 500)
		aio_read(block);
	note(value);
}

/* glibc 2.36 sometimes crashes in this case. */
CASE(aio_h, a_function_may_start_the_next_request, NOWAIT)
{
	struct aiocb block = read_of(new_file("file", BLOCK, 0), 0);

	by_thread(&block, note_and_read_again, &block);
	EQUAL(aio_read(&block), 0);
	await_calls(500);
}

CASE(aio_h, threads_are_used_again, NOWAIT)
{
	struct aiocb block = read_of(new_file("file", BLOCK, 0), 0);

	for (int i = 1; i <= 500; i++) {
		by_thread(&block, note, NULL);
		EQUAL(aio_read(&block), 0);
		await_calls(i);
	}
	/* On a busy machine some threads are not free again in time for the next notification. */
	CHECK(seen.tid_count <= 50);
}

static int counted;

static void count(int signo)
{
	(void)signo;
	__atomic_fetch_add(&counted, 1, __ATOMIC_ACQ_REL);
}

CASE(aio_h, many_notices_of_all_kinds_come_once_each, CONFORMING)
{
	enum { ROUNDS = 20 };
	static struct aiocb blocks[MANY];
	struct sigaction action = { .sa_handler = count, .sa_flags = SA_RESTART };
	int fd = new_file("file", MANY * BLOCK, 0);

	/* Any thread may run the handler, also a thread of a notification, because these threads
	 * block no signal. */
	EQUAL(sigaction(SIGRTMIN, &action, NULL), 0);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < MANY; i++) {
			blocks[i] = read_of(fd, i);
			if (i % 2)
				by_signal(&blocks[i], SIGRTMIN, i);
			else
				by_thread(&blocks[i], note, NULL);
			EQUAL(aio_read(&blocks[i]), 0);
		}
		while (__atomic_load_n(&counted, __ATOMIC_ACQUIRE) < (round + 1) * MANY / 2)
			sched_yield();
		await_calls((round + 1) * MANY / 2);
	}
	EQUAL(counted, ROUNDS * MANY / 2);
	EQUAL(seen.calls, ROUNDS * MANY / 2);
}

CASE(sysconf, tells_that_there_is_asynchronous_io, CONFORMING)
{
	EQUAL(sysconf(_SC_ASYNCHRONOUS_IO), 200809);
	CHECK(_POSIX_ASYNCHRONOUS_IO >= 200112);
}

CASE(sysconf, limits_are_at_least_those_of_the_standard, CONFORMING)
{
	long requests = sysconf(_SC_AIO_MAX), listed = sysconf(_SC_AIO_LISTIO_MAX);

	CHECK(requests == -1 || requests >= _POSIX_AIO_MAX);
	CHECK(listed == -1 || listed >= _POSIX_AIO_LISTIO_MAX);
	CHECK(sysconf(_SC_AIO_PRIO_DELTA_MAX) >= 0);
	EQUAL(sysconf(_SC_PAGESIZE), getpagesize());
	FAILS(sysconf(-1), EINVAL);
}

CASE(aio_init, changes_nothing_that_shows, CONFORMING)
{
	struct aioinit init = { .aio_threads = 3, .aio_num = 7, .aio_idle_time = 1 };
	struct aiocb block = read_of(new_file("file", BLOCK, 0), 0);

	aio_init(&init);
	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), BLOCK);
}
