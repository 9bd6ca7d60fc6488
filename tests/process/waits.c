/* Completions do not interrupt the waits of the submitting thread. epoll_wait, a read with a time
 * limit, sigtimedwait and semop may fail with EINTR only after a signal handler has run, and this
 * program has no handler. `waits FILE`: the file has FILE_BLOCKS blocks and is on a device.
 */
#include "check.h"
#include <aio.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>

#define ROUNDS 20
#define FILE_BLOCKS 256
#define RESFD 1

enum { EPOLL, SOCKET, SIGNAL, SEMAPHORE, WAITS };
enum { READS, WRITES, BUFFERED, EVENTFD, STREAM, POLL, POSIX, END, KINDS };

static const char *const waits[] = { "epoll_wait", "read", "sigtimedwait", "semop" };
static const char *const kinds[] = { "direct reads", "direct writes", "buffered reads",
				     "reads with an eventfd", "a read of a socket", "a poll",
				     "aio_read", "the end of a context" };

static void *ctx;
static int direct, buffered, counter, alarms, epoll, pair[2], stream[2], semaphore;
static char *memory;
static volatile pid_t sleeper;
static sigset_t signals;
static struct aiocb block;

static int sleeps(pid_t thread)
{
	char path[64], line[256], *state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	CHECK(file && fgets(line, sizeof(line), file));
	fclose(file);
	state = strrchr(line, ')');
	return state && state[2] == 'S';
}

static int submit(int kind, struct iocb *requests)
{
	struct iocb *list[MANY];
	int count = kind == STREAM || kind == POLL ? 1 : MANY;

	for (int i = 0; i < count; i++) {
		struct iocb *it = list[i] = &requests[i];

		*it = (struct iocb){ .fildes = kind == BUFFERED ? buffered : direct,
				     .buffer = (unsigned long)memory + i * BLOCK,
				     .bytes = BLOCK,
				     .offset = (long)BLOCK * (random() % FILE_BLOCKS),
				     .opcode = kind == WRITES };
		if (kind == EVENTFD)
			it->flags = RESFD, it->resfd = counter;
		if (kind == STREAM)
			it->fildes = stream[0], it->bytes = 1, it->offset = 0;
		if (kind == POLL)
			*it = (struct iocb){ .fildes = stream[0], .opcode = 5, .buffer = POLLIN };
	}
	if (kind == BUFFERED)
		CHECK(posix_fadvise(buffered, 0, 0, POSIX_FADV_DONTNEED) == 0);
	if (kind == POSIX) {
		block = (struct aiocb){ .aio_fildes = buffered, .aio_buf = memory,
					.aio_nbytes = BLOCK };
		CHECK(aio_read(&block) == 0);
		return 0;
	}
	CHECK(io_submit(ctx, count, list) == count);
	return count;
}

/* While the main thread sleeps, `complete` lets its requests complete; then it wakes the main
 * thread. */
struct task {
	int kind, wait, events;
};

static void *complete(void *argument)
{
	struct task *task = argument;
	struct event events[MANY];
	const struct aiocb *blocks[] = { &block };
	struct sembuf up = { 0, 1, 0 };
	uint64_t one = 1;
	char byte = 1;

	while (!sleeps(sleeper))
		sched_yield();
	if (task->kind == STREAM || task->kind == POLL)
		CHECK(write(stream[1], &byte, 1) == 1);
	CHECK(io_getevents(ctx, task->events, MANY, events, NULL) == task->events);
	if (task->kind == POLL)
		CHECK(read(stream[0], &byte, 1) == 1);
	if (task->kind == POSIX)
		CHECK(aio_suspend(blocks, 1, NULL) == 0 && aio_return(&block) == BLOCK);
	if (task->kind == END) {
		void *other = NULL;

		CHECK(io_setup(1, &other) == 0 && io_destroy(other) == 0);
	}
	while (!sleeps(sleeper))
		sched_yield();
	switch (task->wait) {
	case EPOLL: CHECK(write(alarms, &one, sizeof(one)) == sizeof(one)); break;
	case SOCKET: CHECK(write(pair[1], &byte, 1) == 1); break;
	case SIGNAL: CHECK(kill(getpid(), SIGUSR1) == 0); break;
	case SEMAPHORE: CHECK(semop(semaphore, &up, 1) == 0); break;
	}
	return NULL;
}

static int wait_for(int wait)
{
	struct epoll_event event;
	struct timespec limit = { .tv_sec = 60 };
	struct sembuf down = { 0, -1, 0 };
	uint64_t count;
	char byte;

	switch (wait) {
	case EPOLL:
		if (epoll_wait(epoll, &event, 1, 60000) != 1)
			return -1;
		return read(alarms, &count, sizeof(count)) == sizeof(count) ? 0 : -1;
	case SOCKET: return read(pair[0], &byte, 1) == 1 ? 0 : -1;
	case SIGNAL: return sigtimedwait(&signals, NULL, &limit) == SIGUSR1 ? 0 : -1;
	default: return semop(semaphore, &down, 1);
	}
}

static void round_of(int kind, int wait)
{
	struct iocb requests[MANY];
	struct task task = { .kind = kind, .wait = wait };
	pthread_t thread;
	void *other = NULL;

	if (kind == END)
		CHECK(io_setup(1, &other) == 0 && io_destroy(other) == 0);
	else
		task.events = submit(kind, requests);
	CHECK(pthread_create(&thread, NULL, complete, &task) == 0);
	if (wait_for(wait) != 0) {
		fprintf(stderr, "%s with %s: %s\n", waits[wait], kinds[kind], strerror(errno));
		exit(1);
	}
	CHECK(pthread_join(thread, NULL) == 0);
}

int main(int count, char **arguments)
{
	struct timeval limit = { .tv_sec = 60 };
	struct epoll_event event = { .events = EPOLLIN };

	CHECK(count == 2);
	sleeper = gettid();
	direct = open(arguments[1], O_RDWR | O_DIRECT);
	buffered = open(arguments[1], O_RDWR);
	counter = eventfd(0, EFD_NONBLOCK), alarms = eventfd(0, 0);
	epoll = epoll_create1(0);
	semaphore = semget(IPC_PRIVATE, 1, 0600);
	CHECK(direct >= 0 && buffered >= 0 && counter >= 0 && alarms >= 0 && epoll >= 0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, alarms, &event) == 0);
	CHECK(semaphore >= 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	CHECK(posix_memalign((void **)&memory, BLOCK, MANY * BLOCK) == 0);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
	CHECK(io_setup(MANY, &ctx) == 0);
	for (int round = 0; round < ROUNDS; round++)
		for (int kind = 0; kind < KINDS; kind++)
			for (int wait = 0; wait < WAITS; wait++)
				round_of(kind, wait);
	CHECK(io_destroy(ctx) == 0);
	CHECK(semctl(semaphore, 0, IPC_RMID) == 0);
	return 0;
}
