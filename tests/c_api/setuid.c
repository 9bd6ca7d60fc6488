/* setuid(2) and similar calls wait until each thread of the process, also each thread of an
 * engine, has made the same call. Requests of the engine continue. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* C++ has it */
#endif
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LAST_ERROR nowait_error_text()
#include "../check.h"

#define BLOCK 4096u
#define COUNT 32u
#define FAR_AWAY 3600000000000ull

static char memory[COUNT][BLOCK];

static void change_identity(void)
{
	gid_t groups[2] = { 7, 9 };

	CHECK(setgid(getgid()) == 0);
	if (geteuid() != 0)
		return;
	CHECK(setgroups(2, groups) == 0);
	CHECK(seteuid(12345) == 0);
	CHECK(seteuid(0) == 0);
}

static void change_with_requests_in_flight(const char *path, int cache)
{
	nowait_engine *engine;
	nowait_file *file;
	nowait_queue *queue;
	nowait_request requests[COUNT + 1];
	nowait_completion done[COUNT];
	unsigned round, number;
	int ends[2];

	CHECK(pipe(ends) == 0);
	CHECK(nowait_engine_create(NULL, &engine) == 0);
	CHECK(nowait_file_open(engine, path, O_RDWR, 0, cache, &file) == 0);
	CHECK(nowait_queue_create(engine, COUNT + 1, &queue) == 0);
	/* This poll stays in flight; its timeout makes the engine's timer thread wait, too. */
	nowait_prep_poll(&requests[COUNT], ends[0], 1 /* POLLIN */, COUNT);
	requests[COUNT].timeout_ns = FAR_AWAY;
	CHECK(nowait_submit(queue, &requests[COUNT], 1) == 1);
	for (round = 0; round < 20; round++) {
		for (number = 0; number < COUNT; number++)
			nowait_prep_write(&requests[number], file, memory[number], BLOCK,
					  (uint64_t)number * BLOCK, number);
		CHECK(nowait_submit(queue, requests, COUNT) == (int)COUNT);
		change_identity();
		CHECK(nowait_reap(queue, done, COUNT, COUNT, NOWAIT_FOREVER) == (int)COUNT);
		for (number = 0; number < COUNT; number++)
			CHECK(done[number].result == BLOCK);
	}
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(nowait_reap(queue, done, 1, 1, NOWAIT_FOREVER) == 1);
	nowait_queue_destroy(queue);
	nowait_file_close(file);
	nowait_engine_destroy(engine);
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	int cache;

	CHECK(argc == 2);
	for (cache = NOWAIT_CACHE_USER; cache <= NOWAIT_CACHE_HOST; cache++)
		change_with_requests_in_flight(argv[1], cache);
	puts("done");
	return 0;
}
