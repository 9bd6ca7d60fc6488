/* When the last thread of a process ends by pthread_exit(3), the process ends as by exit(3), with
 * status 0, and not before all notifications have arrived. `last_thread FILE CASE`.
 */
#include "check.h"
#include <aio.h>

static const char *path;
static int ends[2];
static char byte;
static struct aiocb block;

/* The thread that ends the process runs this handler, with the descriptors of the program. */
static void says_goodbye(void) { CHECK(write(STDOUT_FILENO, "goodbye\n", 8) == 8); }

static void work(void)
{
	struct work work;

	begin_work(&work, path, 1);
	end_work(&work);
}

static void until_main_has_ended(pid_t process)
{
	char name[64], line[512];
	FILE *about;

	snprintf(name, sizeof name, "/proc/%d/task/%d/stat", process, process);
	for (int ended = 0; !ended; sched_yield()) {
		CHECK((about = fopen(name, "r")) != NULL);
		ended = fgets(line, sizeof line, about) && strstr(line, ") Z ");
		fclose(about);
	}
}

static void *works_afterwards(void *unused)
{
	until_main_has_ended(getpid());
	work();
	return unused;
}

static void begin_thread(void *(*run)(void *))
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	CHECK(pthread_detach(thread) == 0);
}

/* The child's main thread is the thread that has forked. */
static void *forks(void *unused)
{
	int status;
	pid_t child;

	work();
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		work();
		pthread_exit(NULL);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return unused;
}

static void told(union sigval value)
{
	CHECK(value.sival_int == 7 && aio_return(&block) == 1);
	CHECK(write(STDOUT_FILENO, "told\n", 5) == 5);
}

/* A child writes the byte when all threads of the program itself have ended. */
static void reads_and_is_told(void)
{
	pid_t parent = getpid();

	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	block.aio_fildes = ends[0];
	block.aio_buf = &byte;
	block.aio_nbytes = 1;
	block.aio_sigevent.sigev_notify = SIGEV_THREAD;
	block.aio_sigevent.sigev_notify_function = told;
	block.aio_sigevent.sigev_value.sival_int = 7;
	CHECK(aio_read(&block) == 0);
	if (fork() == 0) {
		until_main_has_ended(parent);
		for (int i = 0; i < 1000; i++)
			sched_yield();
		CHECK(write(ends[1], "x", 1) == 1);
		_exit(0);
	}
}

static int is(const char *name, char **argv) { return strcmp(argv[2], name) == 0; }

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	path = argv[1];
	CHECK(atexit(says_goodbye) == 0);
	if (is("alone", argv))
		work();
	if (is("before", argv))
		begin_thread(works_afterwards);
	if (is("both", argv)) {
		work();
		begin_thread(works_afterwards);
	}
	if (is("fork", argv))
		begin_thread(forks);
	if (is("told", argv))
		reads_and_is_told();
	pthread_exit(NULL);
}
