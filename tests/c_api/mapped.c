/* A file in each cache mode, and a mapping of the same file. Checks when reads of the file see
 * stores to the mapping, and when the mapping shows writes to the file. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAST_ERROR nowait_error_text()
#include "../check.h"

#define BLOCK 4096u
#define BLOCKS 4u

static _Alignas(4096) char memory[BLOCK];

static char first_of(nowait_file *file, unsigned block)
{
	CHECK(nowait_read_exact(file, memory, BLOCK, (uint64_t)block * BLOCK) == 0);
	return memory[0];
}

static struct timespec modified(int fd)
{
	struct stat stat;

	CHECK(fstat(fd, &stat) == 0);
	return stat.st_mtim;
}

/* Writes to the mapping, again until the file's timestamp changes: the clock of timestamps may be
 * coarse. */
static void store(char *mapped, int fd)
{
	struct timespec before = modified(fd), now;

	do {
		mapped[2 * BLOCK] = 3;
		CHECK(msync(mapped, BLOCKS * BLOCK, MS_SYNC) == 0);
		now = modified(fd);
	} while (now.tv_sec == before.tv_sec && now.tv_nsec == before.tv_nsec);
}

static void one_mode(nowait_engine *engine, const char *path, int cache)
{
	nowait_file *file, *again;
	int fd = open(path, O_RDWR);
	char *mapped = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(mapped != MAP_FAILED && mapped[BLOCK] == 1);
	CHECK(nowait_file_open(engine, path, O_RDWR, 0, cache, &file) == 0);
	CHECK(first_of(file, 1) == 1 && first_of(file, 2) == 2);
	memset(memory, 7, BLOCK);
	CHECK(nowait_write_all(file, memory, BLOCK, BLOCK) == 0);
	CHECK(cache == NOWAIT_CACHE_USER || mapped[BLOCK] == 7);
	CHECK(nowait_file_sync(file) == 0);
	CHECK(mapped[BLOCK] == 7);

	store(mapped, fd);
	if (cache == NOWAIT_CACHE_USER) {
		CHECK(nowait_file_open(engine, path, O_RDONLY, 0, cache, &again) == 0);
		nowait_file_close(again);
	}
	CHECK(first_of(file, 2) == 3);
	nowait_file_close(file);
	CHECK(munmap(mapped, BLOCKS * BLOCK) == 0 && close(fd) == 0);
}

int main(int argc, char **argv)
{
	nowait_engine *engine;

	CHECK(argc == 4);
	CHECK(nowait_engine_create(NULL, &engine) == 0);
	one_mode(engine, argv[1], NOWAIT_CACHE_USER);
	one_mode(engine, argv[2], NOWAIT_CACHE_HOST);
	one_mode(engine, argv[3], NOWAIT_CACHE_DIRECT);
	nowait_engine_destroy(engine);
	puts("done");
	return 0;
}
