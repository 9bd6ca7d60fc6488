/* A signal handler leaves by siglongjmp, inside and between calls, and out of exec. Afterwards the
 * thread's signals and cancellation are as before the call, and other threads can use the context.
 * `jumps [aio_suspend]` ends by _exit.
 */
#include "check.h"
#include <aio.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#define ROUNDS 20

static void *ctx;
static int ends[2];
static sigjmp_buf back;
static volatile pid_t waiter;
static volatile int handled, jumped;

static void jump(int signal) { siglongjmp(back, signal); }
static void count(int signal) { handled += signal == SIGUSR2; }

static void block(int how, int signal)
{
	sigset_t one;

	sigemptyset(&one);
	if (signal)
		sigaddset(&one, signal);
	CHECK(pthread_sigmask(how, &one, NULL) == 0);
}

/* Checks that handlers run at once, that no signal but `blocked` is blocked, and that the thread
 * can be cancelled, with the cancellation type `type`. */
static void check_thread(int blocked, int type)
{
	sigset_t now;
	int before;

	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	for (int signal = 1; signal <= SIGSYS; signal++)
		CHECK(sigismember(&now, signal) == (signal == blocked));
	handled = 0;
	CHECK(raise(SIGUSR2) == 0 && handled == 1);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
	CHECK(before == PTHREAD_CANCEL_ENABLE);
	CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before) == 0 && before == type);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
}

static void *jump_out_of_a_wait(void *type)
{
	struct event event;

	CHECK(pthread_setcanceltype((int)(long)type, NULL) == 0);
	if (sigsetjmp(back, 1) == 0) {
		waiter = gettid();
		io_getevents(ctx, 1, 1, &event, NULL);
		CHECK(!"back from the wait");
	}
	check_thread(0, (int)(long)type);
	return NULL;
}

static void *jump_out_of_a_masked_wait(void *unused)
{
	struct event event;
	sigset_t none;

	sigemptyset(&none);
	block(SIG_BLOCK, SIGUSR1);
	if (sigsetjmp(back, 1) == 0) {
		waiter = gettid();
		io_pgetevents(ctx, 1, 1, &event, NULL, &none);
		CHECK(!"back from the wait");
	}
	check_thread(SIGUSR1, PTHREAD_CANCEL_DEFERRED);
	return unused;
}

static void *jump_out_of_suspend(void *unused)
{
	char byte;
	struct aiocb block = { .aio_fildes = ends[0], .aio_buf = &byte, .aio_nbytes = 1 };
	const struct aiocb *list[] = { &block };

	block.aio_sigevent.sigev_notify = SIGEV_NONE;
	CHECK(aio_read(&block) == 0);
	if (sigsetjmp(back, 1) == 0) {
		waiter = gettid();
		aio_suspend(list, 1, NULL);
		CHECK(!"back from the wait");
	}
	check_thread(0, PTHREAD_CANCEL_DEFERRED);
	CHECK(write(ends[1], "y", 1) == 1);
	CHECK(aio_suspend(list, 1, NULL) == 0 && byte == 'y');
	return unused;
}

static void signal_a_waiter(void *(*run)(void *), long type)
{
	struct iocb poll = { .opcode = 5, .fildes = ends[0], .buffer = POLLIN }, *list[] = { &poll };
	struct event event;
	pthread_t thread;

	waiter = 0;
	CHECK(pthread_create(&thread, NULL, run, (void *)type) == 0);
	until_asleep(getpid(), &waiter);
	CHECK(pthread_kill(thread, SIGUSR1) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(io_submit(ctx, 1, list) == 1);
	CHECK(write(ends[1], "x", 1) == 1);
	take_event(ctx, &event);
	CHECK(event.obj == &poll && read(ends[0], &event, 1) == 1);
}

/* The handler jumps out at any instruction of dup2(2), which permits this because it is safe in
 * handlers. close(2) is a cancellation point, and the C library treats a jump out of it in its own
 * way, so this function does not call close(2). */
static void jump_out_of_calls(void)
{
	const struct itimerval soon = { { 0, 0 }, { 0, 100 } };

	jumped = 0;
	sigsetjmp(back, 1);
	if (jumped++ < 10 * ROUNDS) {
		check_thread(0, PTHREAD_CANCEL_DEFERRED);
		CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		for (;;)
			dup2(-1, 1000);
	}
}

static void jump_between_calls(void)
{
	if (sigsetjmp(back, 1) == 0)
		raise(SIGUSR1);
	check_thread(0, PTHREAD_CANCEL_DEFERRED);
}

static void trap_exec(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void *submit(void *poll)
{
	struct iocb *list[] = { poll };

	CHECK(io_submit(ctx, 1, list) == 1);
	return NULL;
}

/* The library has waited for accepted requests when the filter raises SIGSYS, instead of exec. */
static void jump_out_of_exec(void)
{
	char *const args[] = { "true", NULL };
	struct iocb poll = { .opcode = 5, .fildes = ends[0], .buffer = POLLIN };
	struct timespec until;
	struct event event;
	pthread_t thread;

	signal(SIGSYS, jump);
	trap_exec();
	if (sigsetjmp(back, 1) == 0) {
		execv("/bin/true", args);
		CHECK(!"back from exec");
	}
	check_thread(0, PTHREAD_CANCEL_DEFERRED);
	CHECK(pthread_create(&thread, NULL, submit, &poll) == 0);
	CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
	until.tv_sec += 30;
	CHECK(pthread_timedjoin_np(thread, NULL, &until) == 0);
	CHECK(write(ends[1], "x", 1) == 1);
	take_event(ctx, &event);
	CHECK(event.obj == &poll);
}

int main(int argc, char **argv)
{
	(void)argv;
	signal(SIGUSR1, jump);
	signal(SIGALRM, jump);
	signal(SIGUSR2, count);
	CHECK(io_setup(8, &ctx) == 0 && pipe(ends) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		signal_a_waiter(jump_out_of_a_wait, PTHREAD_CANCEL_DEFERRED);
		signal_a_waiter(jump_out_of_a_wait, PTHREAD_CANCEL_ASYNCHRONOUS);
		signal_a_waiter(jump_out_of_a_masked_wait, 0);
		if (argc == 2)
			signal_a_waiter(jump_out_of_suspend, 0);
		jump_between_calls();
	}
	jump_out_of_calls();
	jump_out_of_exec();
	CHECK(io_destroy(ctx) == 0);
	_exit(0);
}
