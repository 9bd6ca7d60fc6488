/* If a call could not make an object for lack of descriptors or memory, it can make the object when
 * enough of them are free again. */
#include <errno.h>
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define LAST_ERROR nowait_error_text()
#include "../check.h"

static rlim_t set_limit(int resource, rlim_t count)
{
	struct rlimit limit;
	rlim_t before;

	CHECK(getrlimit(resource, &limit) == 0);
	before = limit.rlim_cur;
	limit.rlim_cur = count;
	CHECK(setrlimit(resource, &limit) == 0);
	return before;
}

#ifndef __SANITIZE_ADDRESS__ /* which needs memory itself */
static rlim_t mapped_bytes(void)
{
	FILE *about = fopen("/proc/self/statm", "r");
	unsigned long pages;

	CHECK(about && fscanf(about, "%lu", &pages) == 1);
	fclose(about);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}
#endif

int main(int argc, char **argv)
{
	nowait_engine *engine;
	nowait_file *file;
	rlim_t before;
	char byte;

	CHECK(argc == 2);
	before = set_limit(RLIMIT_NOFILE, 0);
	CHECK(nowait_engine_create(NULL, &engine) == -EMFILE);
	CHECK(nowait_engine_create(NULL, &engine) == -EMFILE);
	set_limit(RLIMIT_NOFILE, before);
	CHECK(nowait_engine_create(NULL, &engine) == 0);
#ifndef __SANITIZE_ADDRESS__
	/* The limit leaves enough memory for small objects, but not for a page cache. */
	before = set_limit(RLIMIT_AS, mapped_bytes() + (32 << 20));
	CHECK(nowait_file_open(engine, argv[1], O_RDONLY, 0, NOWAIT_CACHE_USER, &file) == -ENOMEM);
	set_limit(RLIMIT_AS, before);
#endif
	CHECK(nowait_file_open(engine, argv[1], O_RDONLY, 0, NOWAIT_CACHE_USER, &file) == 0);
	CHECK(nowait_read(file, &byte, 1, 4096) == 1 && byte == 1);
	nowait_file_close(file);
	nowait_engine_destroy(engine);
	puts("done");
	return 0;
}
