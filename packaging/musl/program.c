/* A program linked with musl that uses native AIO, through libaio's functions or by its own system
 * calls (-DBY_SYSCALL), and musl's POSIX AIO. Usage: program FILE; prints what it did, or its
 * failure.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT 64
#define SIZE 4096

#define CHECK(what)                                                                            \
	do {                                                                                   \
		if (!(what)) {                                                                 \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what,  \
				errno);                                                        \
			_exit(1);                                                              \
		}                                                                              \
	} while (0)

#ifdef BY_SYSCALL
static long setup(unsigned n, aio_context_t *ctx) { return syscall(SYS_io_setup, n, ctx); }
static long destroy(aio_context_t ctx) { return syscall(SYS_io_destroy, ctx); }
static long submit(aio_context_t ctx, long n, struct iocb **iocbs)
{
	return syscall(SYS_io_submit, ctx, n, iocbs);
}
static long getevents(aio_context_t ctx, long min, long n, struct io_event *events)
{
	return syscall(SYS_io_getevents, ctx, min, n, events, NULL);
}
#else
/* Declared as in libaio.h. */
extern int io_setup(int n, aio_context_t *ctx);
extern int io_destroy(aio_context_t ctx);
extern int io_submit(aio_context_t ctx, long n, struct iocb **iocbs);
extern int io_getevents(aio_context_t ctx, long min, long n, struct io_event *events,
			struct timespec *timeout);
static long setup(unsigned n, aio_context_t *ctx) { return io_setup((int)n, ctx); }
static long destroy(aio_context_t ctx) { return io_destroy(ctx); }
static long submit(aio_context_t ctx, long n, struct iocb **iocbs)
{
	return io_submit(ctx, n, iocbs);
}
static long getevents(aio_context_t ctx, long min, long n, struct io_event *events)
{
	return io_getevents(ctx, min, n, events, NULL);
}
#endif

static struct iocb make(int op, int fd, void *buffer, size_t len, off_t offset)
{
	struct iocb iocb = { .aio_lio_opcode = op, .aio_fildes = fd, .aio_nbytes = len };

	iocb.aio_buf = (uintptr_t)buffer;
	iocb.aio_offset = offset;
	iocb.aio_data = offset / SIZE;
	return iocb;
}

/* Submits COUNT blocks at once, and waits until each is done in full. */
static void transfer(aio_context_t ctx, int op, int fd, char *buffers)
{
	struct iocb iocbs[COUNT], *list[COUNT];
	struct io_event events[COUNT];
	int i;

	for (i = 0; i < COUNT; i++) {
		iocbs[i] = make(op, fd, buffers + i * SIZE, SIZE, (off_t)i * SIZE);
		list[i] = &iocbs[i];
	}
	CHECK(submit(ctx, COUNT, list) == COUNT);
	CHECK(getevents(ctx, COUNT, COUNT, events) == COUNT);
	for (i = 0; i < COUNT; i++)
		CHECK(events[i].res == SIZE);
}

static char *filled(int seed)
{
	char *buffers = aligned_alloc(SIZE, COUNT * SIZE);
	int i;

	CHECK(buffers);
	for (i = 0; i < COUNT * SIZE; i++)
		buffers[i] = (char)(i * 31 + i / SIZE + seed);
	return buffers;
}

/* Reads back written data, by the same call and by a plain one; buffered and direct. */
static void write_and_read(const char *path, int flags)
{
	char *written = filled(flags), *found = filled(1);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
	aio_context_t ctx = 0;

	CHECK(fd >= 0);
	CHECK(setup(COUNT, &ctx) == 0);
	transfer(ctx, IOCB_CMD_PWRITE, fd, written);
	transfer(ctx, IOCB_CMD_PREAD, fd, found);
	CHECK(memcmp(written, found, COUNT * SIZE) == 0);
	memset(found, 0, COUNT * SIZE);
	CHECK(pread(fd, found, COUNT * SIZE, 0) == COUNT * SIZE);
	CHECK(memcmp(written, found, COUNT * SIZE) == 0);
	CHECK(destroy(ctx) == 0);
	CHECK(close(fd) == 0);
	free(written);
	free(found);
}

/* A poll of a pipe ends when another thread writes to it; after a fork the child has its own
 * contexts. */
static void *write_one(void *pipe)
{
	CHECK(write(*(int *)pipe, "x", 1) == 1);
	return NULL;
}

static void wait_for_a_pipe(void)
{
	struct io_event event;
	struct iocb iocb, *list = &iocb;
	aio_context_t ctx = 0;
	pthread_t thread;
	int ends[2];

	CHECK(pipe(ends) == 0);
	CHECK(setup(4, &ctx) == 0);
	iocb = make(IOCB_CMD_POLL, ends[0], NULL, 0, 0);
	iocb.aio_buf = POLLIN;
	CHECK(submit(ctx, 1, &list) == 1);
	CHECK(pthread_create(&thread, NULL, write_one, &ends[1]) == 0);
	CHECK(getevents(ctx, 1, 1, &event) == 1);
	CHECK(event.res & POLLIN);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(destroy(ctx) == 0);
	close(ends[0]);
	close(ends[1]);
}

static void in_a_child(const char *path, void (*task)(const char *path))
{
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (child == 0) {
		task(path);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void write_and_read_buffered(const char *path) { write_and_read(path, 0); }

/* When the process has ended by exit, the accepted writes are in the file. */
static void submit_and_end(const char *path)
{
	static struct iocb iocb;
	struct iocb *list = &iocb;
	aio_context_t ctx = 0;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0 && setup(4, &ctx) == 0);
	iocb = make(IOCB_CMD_PWRITE, fd, filled(9), SIZE, 0);
	CHECK(submit(ctx, 1, &list) == 1);
	exit(0);
}

/* musl's own POSIX AIO. */
static void posix_aio(const char *path)
{
	char buffer[SIZE] = "by POSIX AIO", found[SIZE];
	const struct aiocb *list[1];
	struct aiocb cb = { .aio_buf = buffer, .aio_nbytes = SIZE };

	cb.aio_fildes = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(cb.aio_fildes >= 0);
	CHECK(aio_write(&cb) == 0);
	list[0] = &cb;
	while (aio_error(&cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	CHECK(aio_return(&cb) == SIZE);
	CHECK(pread(cb.aio_fildes, found, SIZE, 0) == SIZE);
	CHECK(memcmp(buffer, found, SIZE) == 0);
	CHECK(close(cb.aio_fildes) == 0);
}

int main(int argc, char **argv)
{
	char found[SIZE], *expected = filled(9);
	int fd;

	CHECK(argc == 2);
	posix_aio(argv[1]);
	write_and_read(argv[1], 0);
	write_and_read(argv[1], O_DIRECT);
	wait_for_a_pipe();
	in_a_child(argv[1], write_and_read_buffered);
	in_a_child(argv[1], submit_and_end);
	fd = open(argv[1], O_RDONLY);
	CHECK(fd >= 0 && read(fd, found, SIZE) == SIZE);
	CHECK(memcmp(expected, found, SIZE) == 0);
	puts("all is as it was written");
	return 0;
}
