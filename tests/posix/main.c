/* Runs one case, or lists the cases: `conformance --list` prints "PAGE NAME WHO" on each line. */
#include "check.h"

static struct {
	const char *page, *name;
	enum who who;
	void (*run)(void);
} cases[256];
static size_t count;
static const char *folder;

volatile sig_atomic_t signals_seen;

void add_case(const char *page, const char *name, enum who who, void (*run)(void))
{
	if (count == sizeof cases / sizeof *cases)
		abort();
	cases[count].page = page;
	cases[count].name = name;
	cases[count].who = who;
	cases[count++].run = run;
}

void fail(const char *file, int line, const char *claim)
{
	fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", file, line, claim, errno,
		strerror(errno));
	exit(1);
}

void differ(const char *file, int line, const char *what, long seen, long expected)
{
	fprintf(stderr, "%s:%d: %s is %ld instead of %ld (errno %d, %s)\n", file, line, what, seen,
		expected, errno, strerror(errno));
	exit(1);
}

void skip(const char *why)
{
	printf("skipped: %s\n", why);
	exit(77);
}

const char *path(const char *name)
{
	static char text[4096];

	snprintf(text, sizeof text, "%s/%s", folder, name);
	return text;
}

int new_file(const char *name, size_t len, int flags)
{
	char block[4096];
	int fd = open(path(name), O_RDWR | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0);
	for (size_t at = 0; at < len; at += sizeof block) {
		size_t part = len - at < sizeof block ? len - at : sizeof block;

		memset(block, (int)(at / sizeof block), sizeof block);
		EQUAL(write(fd, block, part), part);
	}
	close(fd);
	fd = open(path(name), O_RDWR | flags);
	if (fd < 0 && errno == EINVAL && flags & O_DIRECT)
		skip("no O_DIRECT on this file system");
	CHECK(fd >= 0);
	return fd;
}

struct aiocb transfer(int fd, void *buffer, size_t len, off_t offset)
{
	struct aiocb block;

	memset(&block, 0, sizeof block);
	block.aio_fildes = fd;
	block.aio_buf = buffer;
	block.aio_nbytes = len;
	block.aio_offset = offset;
	block.aio_sigevent.sigev_notify = SIGEV_NONE;
	return block;
}

void by_signal(struct aiocb *block, int signo, int value)
{
	block->aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	block->aio_sigevent.sigev_signo = signo;
	block->aio_sigevent.sigev_value.sival_int = value;
}

void by_thread(struct aiocb *block, void (*function)(union sigval), void *value)
{
	block->aio_sigevent.sigev_notify = SIGEV_THREAD;
	block->aio_sigevent.sigev_notify_function = function;
	block->aio_sigevent.sigev_notify_attributes = NULL;
	block->aio_sigevent.sigev_value.sival_ptr = value;
}

int error_at_end(struct aiocb *block)
{
	const struct aiocb *list[] = { block };
	int error;

	while ((error = aio_error(block)) == EINPROGRESS)
		CHECK(aio_suspend(list, 1, NULL) == 0 || errno == EINTR);
	return error;
}

ssize_t value_at_end(struct aiocb *block)
{
	EQUAL(error_at_end(block), 0);
	return aio_return(block);
}

void refused(int called, struct aiocb *block, int error)
{
	if (called == -1) {
		EQUAL(errno, error);
		return;
	}
	EQUAL(called, 0);
	EQUAL(error_at_end(block), error);
	EQUAL(aio_return(block), -1);
}

void block_signal(int signo)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signo);
	EQUAL(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
}

siginfo_t take_signal(int signo)
{
	const struct timespec patience = { .tv_sec = 30 };
	siginfo_t info;
	sigset_t set;
	int taken;

	sigemptyset(&set);
	sigaddset(&set, signo);
	do
		taken = sigtimedwait(&set, &info, &patience);
	while (taken == -1 && errno == EINTR);
	EQUAL(taken, signo);
	return info;
}

bool is_pending(int signo)
{
	sigset_t set;

	EQUAL(sigpending(&set), 0);
	return sigismember(&set, signo);
}

static void on_signal(int signo)
{
	(void)signo;
	signals_seen++;
}

void count_signals(int signo)
{
	struct sigaction action = { .sa_handler = on_signal };

	EQUAL(sigaction(signo, &action, NULL), 0);
}

pthread_t thread_of(void *(*run)(void *), void *argument)
{
	pthread_t thread;

	EQUAL(pthread_create(&thread, NULL, run, argument), 0);
	return thread;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < count; i++)
			printf("%s %s %s\n", cases[i].page, cases[i].name,
			       cases[i].who == NOWAIT ? "nowait" : "conforming");
		return 0;
	}
	if (argc != 4) {
		fprintf(stderr, "usage: conformance PAGE NAME FOLDER | --list\n");
		return 2;
	}
	folder = argv[3];
	for (size_t i = 0; i < count; i++) {
		if (strcmp(cases[i].page, argv[1]) == 0 && strcmp(cases[i].name, argv[2]) == 0) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "no case %s %s\n", argv[1], argv[2]);
	return 2;
}
