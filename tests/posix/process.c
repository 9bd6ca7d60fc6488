/* Requests in flight when the program closes a descriptor, or a thread or the process ends, forks,
 * or becomes another program.
 */
#include "check.h"
#include <sys/syscall.h>

#define BLOCK 4096
#define MANY 64

static struct aiocb blocks[MANY];

static char *filled(char byte)
{
	char *memory = aligned_alloc(BLOCK, BLOCK);

	CHECK(memory);
	return memset(memory, byte, BLOCK);
}

static void start_writes(int fd)
{
	for (int i = 0; i < MANY; i++) {
		blocks[i] = transfer(fd, filled((char)i), BLOCK, (off_t)i * BLOCK);
		EQUAL(aio_write(&blocks[i]), 0);
	}
}

static void check_file(const char *name)
{
	int fd = open(path(name), O_RDONLY);
	char bytes[BLOCK];

	CHECK(fd >= 0);
	for (int i = 0; i < MANY; i++) {
		EQUAL(pread(fd, bytes, BLOCK, (off_t)i * BLOCK), BLOCK);
		EQUAL(bytes[0], i);
		EQUAL(bytes[BLOCK - 1], i);
	}
	close(fd);
}

static pid_t by_clone(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

/* Here only `fork` runs handlers of pthread_atfork(3). */
static pid_t (*const forks[])(void) = { fork, _Fork, by_clone };

static int run_child_of(pid_t (*make)(void), void (*child)(void))
{
	pid_t pid = make();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		child();
		_exit(0);
	}
	EQUAL(waitpid(pid, &status, 0), pid);
	return status;
}

static int run_child(void (*child)(void)) { return run_child_of(fork, child); }

/* glibc's requests on a closed number fail with EBADF, or reach the next file of that number. */
CASE(close, does_not_hinder_requests_in_flight, NOWAIT)
{
	for (int round = 0; round < 20; round++) {
		int flags = round % 2 ? O_DIRECT : 0;
		int fd = new_file("file", MANY * BLOCK, flags);

		start_writes(fd);
		close(fd);
		EQUAL(new_file("other", 10, 0), fd);
		for (int i = 0; i < MANY; i++) {
			EQUAL(value_at_end(&blocks[i]), BLOCK);
			free((void *)blocks[i].aio_buf);
		}
		check_file("file");
		EQUAL(lseek(fd, 0, SEEK_END), 10);
		close(fd);
	}
}

static int thread_fd;

static void *starts_and_ends(void *unused)
{
	(void)unused;
	start_writes(thread_fd);
	return NULL;
}

CASE(pthread_exit, does_not_hinder_requests_in_flight, CONFORMING)
{
	for (int round = 0; round < 10; round++) {
		thread_fd = new_file("file", MANY * BLOCK, round % 2 ? O_DIRECT : 0);
		pthread_join(thread_of(starts_and_ends, NULL), NULL);
		for (int i = 0; i < MANY; i++)
			EQUAL(value_at_end(&blocks[i]), BLOCK);
		check_file("file");
		close(thread_fd);
	}
}

static void uses_its_own(void)
{
	char *bytes = filled(0);
	struct aiocb block = transfer(open(path("file"), O_RDONLY), bytes, BLOCK, 9 * BLOCK);
	struct aiocb other = block;

	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), BLOCK);
	EQUAL(bytes[0], 9);
	EQUAL(aio_cancel(block.aio_fildes, NULL), AIO_ALLDONE);
	block_signal(SIGRTMIN);
	by_signal(&other, SIGRTMIN, 3);
	EQUAL(aio_read(&other), 0);
	EQUAL(take_signal(SIGRTMIN).si_pid, getpid());
}

static struct aiocb pending;

/* In the child, a request that the parent has in flight looks in flight for ever, as with glibc. */
static void looks_at_its_parents(void)
{
	const struct aiocb *list[] = { &pending };
	const struct timespec soon = { 0, 1000000 };

	for (int i = 0; i < 2; i++) {
		EQUAL(aio_error(&pending), EINPROGRESS);
		FAILS(aio_suspend(list, 1, &soon), EAGAIN);
		EQUAL(aio_cancel(pending.aio_fildes, &pending), AIO_NOTCANCELED);
		EQUAL(aio_error(&pending), EINPROGRESS);
		uses_its_own();
	}
}

static void makes_a_grandchild(void)
{
	EQUAL(run_child_of(by_clone, uses_its_own), 0);
	uses_its_own();
}

/* With glibc, a child would wait for ever for threads that only its parent has. */
CASE(fork, leaves_requests_to_the_parent, NOWAIT)
{
	int fd = new_file("file", MANY * BLOCK, 0), ends[2];
	char byte;

	EQUAL(pipe(ends), 0);
	pending = transfer(ends[0], &byte, 1, 0);
	EQUAL(aio_read(&pending), 0);
	for (int round = 0; round < 12; round++) {
		start_writes(fd);
		EQUAL(run_child_of(forks[round % 3], round % 4 ? looks_at_its_parents
							       : makes_a_grandchild), 0);
		for (int i = 0; i < MANY; i++)
			EQUAL(value_at_end(&blocks[i]), BLOCK);
		check_file("file");
	}
	EQUAL(aio_error(&pending), EINPROGRESS);
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(value_at_end(&pending), 1);
}

static void writes_and_exits(void) { start_writes(thread_fd), exit(0); }
static void writes_and_leaves(void) { start_writes(thread_fd), _exit(0); }

static void writes_and_becomes_another(void)
{
	start_writes(thread_fd);
	execl("/bin/true", "true", (char *)NULL);
	_exit(1);
}

/* The standard permits an implementation to cancel the writes; with glibc they end with the
 * process. */
CASE(exit, of_the_process_completes_writes, NOWAIT)
{
	void (*const ways[])(void) = { writes_and_exits, writes_and_leaves,
				       writes_and_becomes_another };

	for (size_t i = 0; i < 9; i++) {
		for (int flags = 0; flags <= O_DIRECT; flags += O_DIRECT) {
			thread_fd = new_file("file", MANY * BLOCK, flags);
			EQUAL(pwrite(thread_fd, filled(-1), BLOCK, 5 * BLOCK), BLOCK);
			EQUAL(run_child_of(forks[i % 3], ways[i / 3]), 0);
			check_file("file");
			close(thread_fd);
		}
	}
}

static void has_a_read_of_a_pipe(void)
{
	static struct aiocb block;
	static char byte;
	int ends[2];

	EQUAL(pipe(ends), 0);
	block = transfer(ends[0], &byte, 1, 0);
	EQUAL(aio_read(&block), 0);
	exit(0);
}

CASE(exit, does_not_wait_for_what_never_ends, CONFORMING)
{
	EQUAL(run_child(has_a_read_of_a_pipe), 0);
}

static void has_a_read_on_the_stack(void)
{
	struct aiocb block;
	char byte;
	int ends[2];

	EQUAL(pipe(ends), 0);
	block = transfer(ends[0], &byte, 1, 0);
	EQUAL(aio_read(&block), 0);
}

/* The exit handlers' stack frames overlap the former place of the block. */
CASE(exit, may_come_after_the_return_of_the_function_with_the_block, CONFORMING)
{
	for (int i = 0; i < 20; i++)
		has_a_read_on_the_stack();
}

static void takes_a_notice(int signal)
{
	(void)signal;
}

/* The requests notify by SIGUSR1, whose default action ends a process. The next program has no
 * handlers. */
static void becomes_another_with_signals_to_come(void)
{
	start_writes(thread_fd);
	for (int i = 0; i < MANY; i++) {
		static struct aiocb told[MANY];

		told[i] = blocks[i];
		by_signal(&told[i], SIGUSR1, i);
		EQUAL(aio_write(&told[i]), 0);
	}
	execl("/bin/sleep", "sleep", "0.05", (char *)NULL);
	_exit(1);
}

CASE(exec, suppresses_the_notices_of_what_completes_meanwhile, NOWAIT)
{
	for (int round = 0; round < 10; round++) {
		pid_t pid;
		int status;

		thread_fd = new_file("file", MANY * BLOCK, 0);
		pid = fork();
		if (pid == 0) {
			/* A notice may arrive before the exec, which resets the handler. */
			signal(SIGUSR1, takes_a_notice);
			becomes_another_with_signals_to_come();
		}
		EQUAL(waitpid(pid, &status, 0), pid);
		EQUAL(status, 0);
		check_file("file");
		close(thread_fd);
	}
}

CASE(exec, that_fails_loses_no_notice, NOWAIT)
{
	static struct aiocb told[MANY];

	thread_fd = new_file("file", MANY * BLOCK, 0);
	block_signal(SIGRTMIN);
	for (int i = 0; i < MANY; i++) {
		told[i] = transfer(thread_fd, filled((char)i), BLOCK, (off_t)i * BLOCK);
		by_signal(&told[i], SIGRTMIN, i);
		EQUAL(aio_write(&told[i]), 0);
	}
	FAILS(execl("/nonexistent", "nothing", (char *)NULL), ENOENT);
	for (int i = 0; i < MANY; i++)
		take_signal(SIGRTMIN);
	for (int i = 0; i < MANY; i++)
		EQUAL(aio_error(&told[i]), 0);
}
