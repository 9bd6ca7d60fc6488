/* A child of vfork that is killed at any instruction does not change the thread that called vfork:
 * its signal handlers run at once, and it can be cancelled. `vfork FOLDER`.
 */
#include "check.h"

#define ROUNDS 200

static volatile pid_t child;
static volatile unsigned children, closes;
static volatile int handled;
static struct work work;

static void count(int signal) { handled += signal == SIGUSR2; }

/* The parent's main thread does not run until the child has ended. */
static void *kill_children(void *unused)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		while (children <= round || closes < 20 + round % 7)
			sched_yield();
		CHECK(kill(child, SIGKILL) == 0);
	}
	return unused;
}

static void be_killed(void)
{
	pid_t made = vfork();

	if (made == 0) {
		child = getpid();
		closes = 0;
		children++;
		for (;; closes++)
			close(work.ends[1]);
	}
	CHECK(made > 0);
}

static void check_thread(void)
{
	int before;

	handled = 0;
	CHECK(raise(SIGUSR2) == 0 && handled == 1);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before) == 0);
	CHECK(before == PTHREAD_CANCEL_ENABLE);
}

int main(int argc, char **argv)
{
	char path[4096];
	pthread_t killer;
	int status;

	CHECK(argc == 2);
	snprintf(path, sizeof path, "%s/file", argv[1]);
	signal(SIGUSR2, count);
	begin_work(&work, path, 'v');
	CHECK(pthread_create(&killer, NULL, kill_children, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		be_killed();
		CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
		check_thread();
	}
	CHECK(pthread_join(killer, NULL) == 0);
	end_work(&work);
	return 0;
}
