/* The program closes the library while requests are in flight, and loads it again: `plugin
 * FILE`. */
#include <dlfcn.h>
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>

#include "../check.h"

#define BLOCK 4096u
#define COUNT 32u
#define FOUND(library, name) ((__typeof__(&name))dlsym(library, #name))

static char memory[COUNT][BLOCK];

static void *loaded(void)
{
	void *library = dlopen("libnowait.so.0", RTLD_NOW | RTLD_LOCAL);

	CHECK(library);
	return library;
}

static void round_of(const char *path)
{
	nowait_request requests[COUNT];
	nowait_completion done[COUNT];
	nowait_engine *engine;
	nowait_queue *queue;
	nowait_file *file;
	void *library = loaded();

	CHECK(FOUND(library, nowait_engine_create)(NULL, &engine) == 0);
	CHECK(FOUND(library, nowait_file_open)(engine, path, O_RDONLY, 0, NOWAIT_CACHE_HOST,
					       &file) == 0);
	CHECK(FOUND(library, nowait_queue_create)(engine, COUNT, &queue) == 0);
	for (unsigned i = 0; i < COUNT; i++)
		nowait_prep_read(&requests[i], file, memory[i], BLOCK, i * BLOCK, i);
	CHECK(FOUND(library, nowait_submit)(queue, requests, COUNT) == COUNT);
	CHECK(dlclose(library) == 0);
	library = loaded();
	CHECK(FOUND(library, nowait_reap)(queue, done, COUNT, COUNT, NOWAIT_FOREVER) == COUNT);
	for (unsigned i = 0; i < COUNT; i++)
		CHECK(done[i].result == BLOCK && memory[i][0] == (char)i);
	FOUND(library, nowait_queue_destroy)(queue);
	FOUND(library, nowait_file_close)(file);
	FOUND(library, nowait_engine_destroy)(engine);
	CHECK(dlclose(library) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	for (int round = 0; round < 5; round++)
		round_of(argv[1]);
	puts("done");
	return 0;
}
