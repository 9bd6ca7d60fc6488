/* Reads blocks at random places, in batches: one call submits as many as the queue has room for.
 *
 *   cc random_read.c $(pkg-config --cflags --libs nowait) && ./a.out FILE 10000 [direct]
 */
#include <errno.h>
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK 4096u
#define DEPTH 64u
#define BATCH 16u

struct reader {
	nowait_file *file;
	nowait_queue *queue;
	char *memory;			/* DEPTH blocks */
	unsigned idle[DEPTH], idle_count; /* numbers of free blocks of memory */
	uint64_t blocks;
	uint64_t random;
};

/* xorshift64: the same places in every run. */
static uint64_t next_random(struct reader *reader)
{
	reader->random ^= reader->random << 13;
	reader->random ^= reader->random >> 7;
	reader->random ^= reader->random << 17;
	return reader->random;
}

/* Submits up to `wanted` reads; returns how many were accepted, or a negative error number. */
static int submit_batch(struct reader *reader, uint64_t wanted)
{
	nowait_request requests[BATCH];
	unsigned count = reader->idle_count < BATCH ? reader->idle_count : BATCH;
	unsigned index, number;
	int accepted;

	if (count > wanted)
		count = (unsigned)wanted;
	for (index = 0; index < count; index++) {
		number = reader->idle[reader->idle_count - 1 - index];
		nowait_prep_read(&requests[index], reader->file, reader->memory + number * BLOCK,
				 BLOCK, next_random(reader) % reader->blocks * BLOCK, number);
	}
	accepted = nowait_submit(reader->queue, requests, count);
	/* A full queue is no failure: the program submits the rest after it has reaped some. */
	if (accepted == -EAGAIN)
		return 0;
	if (accepted > 0)
		reader->idle_count -= (unsigned)accepted;
	return accepted;
}

static int run(struct reader *reader, uint64_t total)
{
	nowait_completion done[DEPTH];
	uint64_t submitted = 0, ended = 0, bytes = 0;
	int count, index;

	while (ended < total) {
		count = submit_batch(reader, total - submitted);
		if (count < 0)
			return count;
		submitted += (uint64_t)count;
		/* While there is more to submit, takes completions without waiting. */
		count = nowait_reap(reader->queue, done, DEPTH,
				    reader->idle_count == 0 || submitted == total, NOWAIT_FOREVER);
		if (count < 0)
			return count;
		for (index = 0; index < count; index++) {
			if (done[index].result < 0)
				return (int)done[index].result;
			bytes += (uint64_t)done[index].result;
			reader->idle[reader->idle_count++] = (unsigned)done[index].user_data;
		}
		ended += (uint64_t)count;
	}
	printf("%llu reads, %llu bytes\n", (unsigned long long)ended, (unsigned long long)bytes);
	return 0;
}

int main(int argc, char **argv)
{
	struct reader reader;
	nowait_engine *engine = NULL;
	nowait_options options = NOWAIT_OPTIONS_INIT;
	uint64_t size = 0;
	unsigned number;
	int cache, result;

	if (argc < 3) {
		fprintf(stderr, "usage: %s FILE COUNT [direct|host]\n", argv[0]);
		return 2;
	}
	cache = argc < 4 ? NOWAIT_CACHE_USER
			 : strcmp(argv[3], "host") ? NOWAIT_CACHE_DIRECT : NOWAIT_CACHE_HOST;
	memset(&reader, 0, sizeof(reader));
	reader.random = 88172645463325252u;
	options.flags = NOWAIT_ENVIRONMENT;
	result = nowait_engine_create(&options, &engine);
	if (!result)
		result = nowait_file_open(engine, argv[1], O_RDONLY, 0, cache, &reader.file);
	if (!result)
		result = nowait_file_size(reader.file, &size);
	if (!result)
		result = nowait_queue_create(engine, DEPTH, &reader.queue);
	/* 4096 suits direct I/O on every device; nowait_file_alignment() returns the exact number. */
	reader.blocks = size / BLOCK;
	reader.memory = (char *)aligned_alloc(BLOCK, DEPTH * BLOCK);
	for (number = 0; number < DEPTH; number++)
		reader.idle[reader.idle_count++] = number;
	if (!result && (!reader.memory || reader.blocks == 0))
		fprintf(stderr, "no memory, or less than a block in the file\n");
	else if (!result)
		result = run(&reader, strtoull(argv[2], NULL, 10));
	if (result)
		fprintf(stderr, "%s\n", nowait_error_text());
	nowait_queue_destroy(reader.queue);
	free(reader.memory);
	nowait_file_close(reader.file);
	nowait_engine_destroy(engine);
	return result ? 1 : 0;
}
