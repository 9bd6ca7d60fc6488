/* Children of fork, vfork, posix_spawn and daemon while requests are in flight. All events of the
 * parent arrive, and a forked child uses contexts of its own. `children FOLDER [daemon]`.
 */
#include "check.h"
#include <spawn.h>

extern char **environ;

static struct work work;
static char file[4096], other[4096];

static void wait_for(pid_t child, int code)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

static void use_its_own(void)
{
	struct work own;
	struct iocb *list[] = { &work.writes[0] };

	CHECK(io_submit(work.ctx, 1, list) == -EINVAL);
	begin_work(&own, other, 'c');
	end_work(&own);
}

/* A function that calls vfork must not return in the child, so each child ends in the function. */
static void vfork_and_exec(void)
{
	char *argv[] = { "true", NULL };
	pid_t child = vfork();

	if (child == 0) {
		close(work.fd);
		close_range(3, ~0u, 0);
		execv("/bin/true", argv);
		_exit(1);
	}
	wait_for(child, 0);
}

static void vfork_and_leave(void)
{
	char *argv[] = { "nothing", NULL };
	pid_t child = vfork();

	if (child == 0) {
		execv("/nonexistent", argv);
		_exit(7);
	}
	wait_for(child, 7);
}

static void spawn(void)
{
	char *argv[] = { "sh", "-c", "! ls -l /proc/self/fd | grep -q anon_inode", NULL };
	posix_spawn_file_actions_t actions;
	pid_t child;

	for (int closes = 0; closes < 2; closes++) {
		CHECK(posix_spawn_file_actions_init(&actions) == 0);
		if (closes)
			CHECK(posix_spawn_file_actions_addclosefrom_np(&actions, 3) == 0);
		CHECK(posix_spawn(&child, "/bin/sh", &actions, NULL, argv, environ) == 0);
		posix_spawn_file_actions_destroy(&actions);
		wait_for(child, 0);
	}
	CHECK(system("exit 3") >> 8 == 3);
}

static void fork_and_leave(void)
{
	pid_t child = fork();

	if (child == 0) {
		use_its_own();
		_exit(0);
	}
	wait_for(child, 0);
}

/* The grandchild uses a context while its parent ends, or later. */
static void fork_twice(void)
{
	int ends[2];
	char byte;
	pid_t child;

	CHECK(pipe(ends) == 0);
	child = fork();
	if (child == 0) {
		if (fork() == 0) {
			use_its_own();
			CHECK(write(ends[1], "y", 1) == 1);
		}
		_exit(0);
	}
	close(ends[1]);
	wait_for(child, 0);
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'y');
	close(ends[0]);
}

static void be_a_daemon(int has_context)
{
	int ends[2], fd;
	char byte;
	pid_t child;

	CHECK(pipe(ends) == 0);
	child = fork();
	if (child == 0) {
		if (has_context)
			begin_work(&work, file, 'd');
		CHECK(daemon(1, 1) == 0);
		if (has_context)
			use_its_own();
		else
			begin_work(&work, file, 'd'), end_work(&work);
		CHECK(write(ends[1], "y", 1) == 1);
		_exit(0);
	}
	close(ends[1]);
	wait_for(child, 0);
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'y');
	close(ends[0]);
	CHECK((fd = open(file, O_RDONLY)) >= 0);
	check_file(fd, 'd');
	close(fd);
	unlink(file);
}

int main(int argc, char **argv)
{
	void (*const kinds[])(void) = { vfork_and_exec, vfork_and_leave, spawn, fork_and_leave,
					fork_twice };

	CHECK(argc == 2 || argc == 3);
	snprintf(file, sizeof file, "%s/file", argv[1]);
	snprintf(other, sizeof other, "%s/other", argv[1]);
	for (int round = 0; argc == 3 && round < 10; round++)
		be_a_daemon(1);
	if (argc == 3)
		return 0;
	be_a_daemon(0);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		begin_work(&work, file, (char)(i + 1));
		kinds[i]();
		end_work(&work);
	}
	return 0;
}
