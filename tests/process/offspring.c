/* Several ways to make a child, some of which run no handlers of fork, and several uses of contexts
 * in the child. The program prints a line for each pair, which must be the same with each library.
 * The parent has requests in flight, and all their events arrive. `offspring FOLDER [watched]`:
 * with `watched`, the library sees how a process ends.
 */
#include "check.h"
#include <linux/sched.h>
#include <sys/syscall.h>

#define STACK (256 << 10)
#define CHILDREN 20

typedef int body(void);

static struct work work;
static char file[4096], other[4096], third[4096];
/* `empty` has no requests and events; `unread` has an event that the program has not taken. */
static void *empty, *unread;
static struct iocb read_of_page;
static char page[BLOCK];

static pid_t run(pid_t child, body *runs)
{
	if (child == 0)
		_exit(runs());
	return child;
}

static pid_t by_fork(body *runs) { return run(fork(), runs); }
static pid_t by_fork_without_handlers(body *runs) { return run(_Fork(), runs); }

static pid_t by_clone(body *runs)
{
	return run((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0), runs);
}

static pid_t by_clone3(body *runs)
{
	struct clone_args args = { .exit_signal = SIGCHLD };

	return run((pid_t)syscall(SYS_clone3, &args, sizeof args), runs);
}

static int status_of(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static body *of_grandchild;

static int makes_another(void) { return status_of(by_clone(of_grandchild)); }

/* Makes a child of a child that has made no request itself. */
static pid_t twice(body *runs)
{
	of_grandchild = runs;
	return by_clone(makes_another);
}

static int uses_and_makes_another(void)
{
	begin_work(&work, third, 'b');
	if (status_of(by_clone(of_grandchild)))
		return 1;
	end_work(&work);
	return 0;
}

static pid_t of_a_child_with_requests(body *runs)
{
	of_grandchild = runs;
	return by_clone(uses_and_makes_another);
}

static int run_in_memory(void *runs) { return ((body *)runs)(); }

/* Makes a child like vfork, but on a stack of its own. */
static pid_t in_memory(body *runs, int flags)
{
	static char stack[STACK] __attribute__((aligned(16)));

	return clone(run_in_memory, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD | flags,
		     (void *)runs);
}

static pid_t by_vfork(body *runs) { return in_memory(runs, 0); }
static pid_t with_descriptors(body *runs) { return in_memory(runs, CLONE_FILES | CLONE_FS); }

static const struct kind {
	const char *name;
	pid_t (*make)(body *runs);
	bool shares;
} kinds[] = {
	{ "fork", by_fork, false },
	{ "_Fork", by_fork_without_handlers, false },
	{ "clone", by_clone, false },
	{ "clone3", by_clone3, false },
	{ "clone twice", twice, false },
	{ "clone of a clone with requests", of_a_child_with_requests, false },
	{ "vfork", by_vfork, true },
	{ "clone with CLONE_VM and CLONE_FILES", with_descriptors, true },
};

static int events_of(void *ctx, long min, long ns)
{
	struct timespec wait = { 0, ns };
	struct event event;

	return io_getevents(ctx, min, 1, &event, &wait);
}

static int uses_inherited(void)
{
	struct iocb *list[] = { &read_of_page };
	struct event event;
	int looked = events_of(empty, 0, 0);
	int submitted = io_submit(empty, 1, list);
	int taken = events_of(empty, 1, 900000000);
	int waited = events_of(empty, 1, 1000);
	int cancelled = io_cancel(empty, &read_of_page, &event);
	int found = events_of(unread, 0, 0);
	int ended = io_destroy(empty);

	dprintf(1, "look %d, submit %d, take %d, wait %d, cancel %d, unread %d, destroy %d\n",
		looked, submitted, taken, waited, cancelled, found, ended);
	return 0;
}

static int uses_its_own(void)
{
	struct work own;
	struct iocb direct = { .buffer = (unsigned long)aligned_alloc(BLOCK, BLOCK),
			       .bytes = BLOCK };
	struct iocb *list[] = { &direct };
	struct event event;

	begin_work(&own, other, 'c');
	end_work(&own);
	own.ctx = NULL;
	CHECK((direct.fildes = open(other, O_RDONLY | O_DIRECT)) >= 0);
	CHECK(io_setup(1, &own.ctx) == 0 && io_submit(own.ctx, 1, list) == 1);
	take_event(own.ctx, &event);
	CHECK(event.res == BLOCK && *(char *)direct.buffer == 'c');
	close(direct.fildes);
	return io_destroy(own.ctx);
}

static int leaves(void)
{
	struct work own;

	begin_work(&own, other, 'l');
	return 0;
}

static int leaves_by_exit(void) { exit(leaves()); }

static int becomes_another(void)
{
	struct work own;

	begin_work(&own, other, 'l');
	return execl("/bin/true", "true", (char *)NULL);
}

static const struct act {
	const char *name;
	body *body;
	/* The child ends with writes in flight, whose data must be in the file afterwards. */
	bool ends;
} acts[] = {
	{ "inherited", uses_inherited, false }, { "its own", uses_its_own, false },
	{ "_exit", leaves, true },		{ "execve", becomes_another, true },
	{ "exit", leaves_by_exit, true },
};

static void check_and_remove(const char *path, char byte)
{
	int fd = open(path, O_RDONLY);

	CHECK(fd >= 0);
	check_file(fd, byte);
	close(fd);
	unlink(path);
}

static void *new_context(bool has_event)
{
	struct iocb *list[] = { &read_of_page };
	void *ctx = NULL;
	volatile unsigned *ring;

	CHECK(io_setup(4, &ctx) == 0);
	ring = ctx;
	CHECK(!has_event || io_submit(ctx, 1, list) == 1);
	while (has_event && ring[2] == ring[3])
		sched_yield();
	return ctx;
}

static void check(const struct kind *kind, const struct act *act)
{
	int code, left;

	begin_work(&work, file, 'p');
	read_of_page = (struct iocb){ .fildes = work.fd, .buffer = (unsigned long)page, .bytes = 1 };
	empty = new_context(false);
	unread = new_context(true);
	dprintf(1, "%s, %s: ", kind->name, act->name);
	code = status_of(kind->make(act->body));
	left = events_of(unread, 0, 0);
	dprintf(1, "ends with %d, left %d, destroy %d", code, left, io_destroy(empty));
	dprintf(1, ", %d\n", io_destroy(unread));
	if (act->ends)
		check_and_remove(other, 'l');
	end_work(&work);
}

static bool is_over;

static void *makes_calls(void *unused)
{
	struct iocb block = read_of_page, *list[] = { &block };
	struct event event;
	void *ctx = NULL;

	CHECK(io_setup(4, &ctx) == 0);
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		void *another = NULL;

		CHECK(io_submit(ctx, 1, list) == 1);
		take_event(ctx, &event);
		CHECK(event.obj == &block && event.res == 1);
		CHECK(io_setup(1, &another) == 0 && io_destroy(another) == 0);
	}
	CHECK(io_destroy(ctx) == 0);
	return unused;
}

static void check_beside_threads(void)
{
	pthread_t threads[2];

	begin_work(&work, file, 't');
	read_of_page = (struct iocb){ .fildes = work.fd, .buffer = (unsigned long)page, .bytes = 1 };
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, makes_calls, NULL) == 0);
	for (int i = 0; i < CHILDREN; i++)
		CHECK(status_of(by_clone(uses_its_own)) == 0);
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	end_work(&work);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 || argc == 3);
	snprintf(file, sizeof file, "%s/file", argv[1]);
	snprintf(other, sizeof other, "%s/other", argv[1]);
	snprintf(third, sizeof third, "%s/third", argv[1]);
	/* At first the parent has made no request itself. */
	CHECK(status_of(by_vfork(uses_its_own)) == 0);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		for (size_t j = 0; j < sizeof acts / sizeof *acts; j++)
			/* A child that shares the memory would run the exit handlers of its parent. */
			if ((!acts[j].ends || argc == 3) &&
			    (!kinds[i].shares || acts[j].body != leaves_by_exit))
				check(&kinds[i], &acts[j]);
	check_beside_threads();
	return 0;
}
