/* Makes the reads of `python -m nowait.bench --case uncached-64` by the C API, for comparison.
 * Reads offsets, eight bytes each, from its input, and prints the seconds that all reads took.
 * Makes the reads once before without measuring, as the Python benchmark does: the kernel then need
 * not clear memory during the measurement.
 *
 *   cc -O2 read_random.c $(pkg-config --cflags --libs nowait) -o read_random
 *   ./read_random FILE host|user LENGTH DEPTH < OFFSETS
 */
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define DEPTH_MAX 1024u

struct reader {
	nowait_file *file;
	nowait_queue *queue;
	char *memory; /* `depth` buffers of `length` bytes */
	size_t length;
	unsigned depth;
	uint64_t *offsets;
	size_t count;
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
	fprintf(stderr, "read_random: %s\n", what);
	exit(1);
}

static void read_offsets(struct reader *reader)
{
	size_t room = 0;

	for (;;) {
		if (reader->count == room) {
			room = room ? room * 2 : 4096;
			reader->offsets = realloc(reader->offsets, room * sizeof(uint64_t));
			if (!reader->offsets)
				fail("no memory for the offsets");
		}
		if (fread(&reader->offsets[reader->count], sizeof(uint64_t), 1, stdin) != 1)
			return;
		reader->count++;
	}
}

/* Reads at all offsets, `depth` at a time: each read that ends makes room for the next. */
static void run(struct reader *reader)
{
	nowait_request requests[DEPTH_MAX];
	nowait_completion done[DEPTH_MAX];
	unsigned idle[DEPTH_MAX], idle_count = 0, index;
	size_t begun = 0, ended = 0;
	int accepted, count;

	while (idle_count < reader->depth) {
		idle[idle_count] = idle_count;
		idle_count++;
	}
	while (ended < reader->count) {
		for (index = 0; index < idle_count && begun + index < reader->count; index++) {
			unsigned number = idle[idle_count - 1 - index];

			nowait_prep_read(&requests[index], reader->file,
					 reader->memory + number * reader->length, reader->length,
					 reader->offsets[begun + index], number);
		}
		accepted = index ? nowait_submit(reader->queue, requests, index) : 0;
		if (accepted < 0)
			fail(nowait_error_text());
		begun += (size_t)accepted;
		idle_count -= (unsigned)accepted;
		count = nowait_reap(reader->queue, done, reader->depth, 1, NOWAIT_FOREVER);
		if (count < 0)
			fail(nowait_error_text());
		for (index = 0; index < (unsigned)count; index++) {
			if (done[index].result != (int64_t)reader->length)
				fail("a read failed, or was short");
			idle[idle_count++] = (unsigned)done[index].user_data;
		}
		ended += (size_t)count;
	}
}

/* Drops the file from the kernel's page cache. */
static void forget(const char *path)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		fail("the kernel does not forget the file");
	close(fd);
}

int main(int argc, char **argv)
{
	nowait_options options = NOWAIT_OPTIONS_INIT;
	nowait_engine *engine;
	struct reader reader;
	double begin;
	int cache;

	memset(&reader, 0, sizeof(reader));
	if (argc == 5) {
		reader.length = strtoul(argv[3], NULL, 10);
		reader.depth = (unsigned)strtoul(argv[4], NULL, 10);
	}
	if (!reader.length || !reader.depth || reader.depth > DEPTH_MAX ||
	    (strcmp(argv[2], "host") && strcmp(argv[2], "user"))) {
		fprintf(stderr, "usage: %s FILE host|user LENGTH DEPTH < OFFSETS\n", argv[0]);
		return 2;
	}
	cache = strcmp(argv[2], "host") ? NOWAIT_CACHE_USER : NOWAIT_CACHE_HOST;
	read_offsets(&reader);
	reader.memory = aligned_alloc(4096, (reader.depth * reader.length + 4095) / 4096 * 4096);
	if (!reader.memory)
		fail("no memory for what is read");
	options.flags = NOWAIT_ENVIRONMENT;
	if (nowait_engine_create(&options, &engine) ||
	    nowait_file_open(engine, argv[1], O_RDONLY, 0, cache, &reader.file) ||
	    nowait_queue_create(engine, reader.depth, &reader.queue))
		fail(nowait_error_text());
	run(&reader);
	if (nowait_file_advise(reader.file, 0, 0, NOWAIT_ADVICE_DONTNEED))
		fail(nowait_error_text());
	forget(argv[1]);
	begin = now();
	run(&reader);
	printf("%.9f\n", now() - begin);
	nowait_queue_destroy(reader.queue);
	nowait_file_close(reader.file);
	nowait_engine_destroy(engine);
	free(reader.memory);
	free(reader.offsets);
	return 0;
}
