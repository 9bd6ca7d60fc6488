/* The code that docs/c.md quotes: `pages FILE`, a file whose blocks hold their numbers. */
#include <err.h>
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>

#define LAST_ERROR nowait_error_text()
#include "../check.h"

static char buffers[16][4096];
static const uint64_t offsets[16] = {0, 4096};
static unsigned used;

static void use(uint64_t number, int64_t result)
{
	CHECK(result == 4096 && buffers[number][0] == (char)(offsets[number] / 4096));
	used++;
}

static void open_and_read(const char *path)
{
	char buffer[4096];

	nowait_engine *engine;
	nowait_file *file;
	int64_t count;

	if (nowait_engine_create(NULL, &engine) ||
	    nowait_file_open(engine, path, O_RDONLY, 0, NOWAIT_CACHE_USER, &file))
		errx(1, "%s", nowait_error_text());
	count = nowait_read(file, buffer, sizeof(buffer), 4096); /* blocks; negative: failed */
	nowait_file_close(file);
	nowait_engine_destroy(engine);

	CHECK(count == 4096 && buffer[0] == 1);
}

static void many_at_a_time(nowait_engine *engine, nowait_file *file)
{
	nowait_queue *queue;
	int n;

	nowait_request requests[16];
	nowait_completion done[16];
	int accepted, ended;

	nowait_queue_create(engine, 64, &queue);
	for (n = 0; n < 16; n++)
		nowait_prep_read(&requests[n], file, buffers[n], 4096, offsets[n], n);
	accepted = nowait_submit(queue, requests, 16);           /* waits for no data */
	ended = nowait_reap(queue, done, 16, 1, NOWAIT_FOREVER); /* at least one */
	for (n = 0; n < ended; n++)
		use(done[n].user_data, done[n].result); /* bytes, or -EIO … */

	CHECK(accepted == 16 && ended >= 1);
	ended += nowait_reap(queue, done, 16, 16 - (size_t)ended, NOWAIT_FOREVER);
	for (n = 0; used < 16; n++)
		use(done[n].user_data, done[n].result);
	CHECK(ended == 16);
	nowait_queue_destroy(queue);
}

int main(int argc, char **argv)
{
	nowait_engine *engine;
	nowait_file *file;

	CHECK(argc == 2);
	open_and_read(argv[1]);
	CHECK(nowait_engine_create(NULL, &engine) == 0);
	CHECK(nowait_file_open(engine, argv[1], O_RDONLY, 0, NOWAIT_CACHE_HOST, &file) == 0);
	many_at_a_time(engine, file);
	nowait_file_close(file);
	nowait_engine_destroy(engine);
	printf("done\n");
	return 0;
}
