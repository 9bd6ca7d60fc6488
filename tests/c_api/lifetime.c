/* A program may use a handle after it has destroyed the handle from which the first was made. A
 * forked child does not affect the handles of its parent. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAST_ERROR nowait_error_text()
#include "../check.h"

#define BLOCK 4096u
#define COUNT 32u

static char memory[COUNT][BLOCK];

static void give_up_early(const char *path, int cache)
{
	nowait_engine *engine;
	nowait_file *file;
	nowait_queue *queue;
	nowait_request requests[COUNT];
	nowait_completion done[COUNT];
	unsigned number;

	CHECK(nowait_engine_create(NULL, &engine) == 0);
	CHECK(nowait_file_open(engine, path, O_RDONLY, 0, cache, &file) == 0);
	CHECK(nowait_queue_create(engine, COUNT, &queue) == 0);
	nowait_engine_destroy(engine);
	for (number = 0; number < COUNT; number++)
		nowait_prep_read(&requests[number], file, memory[number], BLOCK,
				 (uint64_t)number * BLOCK, number);
	CHECK(nowait_submit(queue, requests, COUNT) == (int)COUNT);
	memset(requests, 0xff, sizeof(requests));
	nowait_file_close(file);
	CHECK(nowait_reap(queue, done, COUNT, COUNT, NOWAIT_FOREVER) == (int)COUNT);
	for (number = 0; number < COUNT; number++) {
		CHECK(done[number].result == BLOCK);
		CHECK(memory[number][BLOCK - 1] == (char)number);
	}
	nowait_queue_destroy(queue);
}

static void in_the_child(const char *path, nowait_engine *engine, nowait_file *file,
			 nowait_queue *queue)
{
	nowait_completion done;
	nowait_queue *none;

	CHECK(nowait_reap(queue, &done, 1, 1, NOWAIT_FOREVER) == -EINVAL);
	CHECK(nowait_queue_create(engine, 1, &none) == -EINVAL && none == NULL);
	nowait_queue_destroy(queue);
	nowait_file_close(file);
	nowait_engine_destroy(engine);
	give_up_early(path, NOWAIT_CACHE_USER);
	_exit(0);
}

/* Waits until the engine's threads sleep. AddressSanitizer's allocator stays locked in a child if
 * another thread is inside the allocator during the fork. */
static void wait_until_others_sleep(void)
{
	int awake;

	do {
		DIR *tasks = opendir("/proc/self/task");
		struct dirent *task;

		CHECK(tasks != NULL);
		awake = 0;
		while ((task = readdir(tasks)) != NULL) {
			char path[300], stat[512] = "", *end;
			FILE *file;

			if (task->d_name[0] == '.' || atoi(task->d_name) == getpid())
				continue;
			snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task->d_name);
			file = fopen(path, "r");
			if (file == NULL)
				continue;
			/* A thread that has ended meanwhile has no line. */
			if (fgets(stat, sizeof(stat), file) == NULL)
				stat[0] = 0;
			fclose(file);
			end = strrchr(stat, ')');
			awake |= end == NULL || end[2] != 'S';
		}
		closedir(tasks);
	} while (awake);
}

static void fork_with_requests_in_flight(const char *path)
{
	nowait_engine *engine;
	nowait_file *file;
	nowait_queue *queue;
	nowait_request requests[2];
	nowait_completion done[2];
	int ends[2], status;
	pid_t child;

	CHECK(pipe(ends) == 0);
	CHECK(nowait_engine_create(NULL, &engine) == 0);
	CHECK(nowait_file_open(engine, path, O_RDONLY, 0, NOWAIT_CACHE_USER, &file) == 0);
	CHECK(nowait_queue_create(engine, 2, &queue) == 0);
	nowait_prep_poll(&requests[0], ends[0], 1 /* POLLIN */, 1);
	nowait_prep_read(&requests[1], file, memory[0], BLOCK, BLOCK, 2);
	CHECK(nowait_submit(queue, requests, 2) == 2);
	wait_until_others_sleep();
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		in_the_child(path, engine, file, queue);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(nowait_reap(queue, done, 2, 2, NOWAIT_FOREVER) == 2);
	CHECK(done[0].result > 0 && done[1].result > 0);
	CHECK(memory[0][0] == 1);
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
	CHECK(nowait_version() == NOWAIT_VERSION);
	for (cache = NOWAIT_CACHE_USER; cache <= NOWAIT_CACHE_HOST; cache++)
		give_up_early(argv[1], cache);
	fork_with_requests_in_flight(argv[1]);
	puts("done");
	return 0;
}
