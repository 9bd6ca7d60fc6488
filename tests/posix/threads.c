/* The number of threads that serve a program. */
#include "check.h"

#include <dirent.h>

#define PART (64 << 10)
#define MANY 64

static int threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = 0;

	CHECK(tasks);
	while (readdir(tasks))
		count++;
	closedir(tasks);
	return count - 2; /* without "." and ".." */
}

static void read_with_few(int flags)
{
	static struct aiocb blocks[MANY];
	int fd = new_file("file", 1024 * PART, flags), most = 0;
	char *buffer = aligned_alloc(4096, (size_t)MANY * PART);

	CHECK(buffer);
	EQUAL(fsync(fd), 0);
	EQUAL(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	for (int i = 0; i < 1024; i++) {
		struct aiocb *block = &blocks[i % MANY];

		if (i >= MANY)
			EQUAL(value_at_end(block), PART);
		*block = transfer(fd, buffer + (size_t)(i % MANY) * PART, PART,
				  (off_t)(i * 7 % 1024) * PART);
		EQUAL(aio_read(block), 0);
		int now = threads();
		most = now > most ? now : most;
	}
	for (int i = 0; i < MANY; i++)
		EQUAL(value_at_end(&blocks[i]), PART);
	CHECK(most <= 1 + 4);
}

CASE(threads, at_most_four_serve_64_buffered_reads, NOWAIT) { read_with_few(0); }
CASE(threads, at_most_four_serve_64_direct_reads, NOWAIT) { read_with_few(O_DIRECT); }
