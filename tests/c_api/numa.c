/* Where memory of an engine lies: on the NUMA node of the thread that used it first.
 *
 * `numa FOLDER`: a folder with direct I/O, on a machine with the nodes 0 and 1, each with the
 * processor of its number. Each node's thread fills its own parts of two cached files, by a write
 * and by reads of a queue. For each part the program prints how many pages lie on that node.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <nowait.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LAST_ERROR nowait_error_text()
#include "../check.h"

#define NODES 2
#define PAGE 4096u
#define CHUNK (64u << 10)
/* The part of each thread is whole huge pages, so that no huge page has memory of two threads. */
#define PART (4u << 20)
#define CHUNKS (PART / CHUNK)

static nowait_engine *engine;
static nowait_file *written, *read_file;

/* The node of the page at an address that was used before. */
static int node_of(const void *address)
{
	void *page = (void *)((size_t)address & ~(size_t)(PAGE - 1));
	int node = -1;

	CHECK(syscall(SYS_move_pages, 0, 1ul, &page, NULL, &node, 0) == 0);
	return node;
}

static void move_to(int node)
{
	cpu_set_t processors;

	CPU_ZERO(&processors);
	CPU_SET(node, &processors);
	CHECK(sched_setaffinity(0, sizeof(processors), &processors) == 0);
}

static void write_part(uint64_t offset)
{
	char *bytes = (char *)malloc(PART);

	memset(bytes, 7, PART);
	CHECK(nowait_write(written, bytes, PART, offset) == PART);
	free(bytes);
}

static void read_part(uint64_t offset, char *buffer)
{
	nowait_queue *queue;
	nowait_request request;
	nowait_completion done;
	unsigned chunk;

	CHECK(nowait_queue_create(engine, 8, &queue) == 0);
	for (chunk = 0; chunk < CHUNKS; chunk++) {
		nowait_prep_read(&request, read_file, buffer, CHUNK, offset + chunk * CHUNK, chunk);
		CHECK(nowait_submit(queue, &request, 1) == 1);
		CHECK(nowait_reap(queue, &done, 1, 1, NOWAIT_FOREVER) == 1);
		CHECK(done.result == CHUNK);
	}
	nowait_queue_destroy(queue);
}

static void *use(void *argument)
{
	int node = *(int *)argument;
	uint64_t offset = (uint64_t)node * PART;
	char *buffer;

	move_to(node);
	CHECK(posix_memalign((void **)&buffer, PAGE, CHUNK) == 0);
	write_part(offset);
	read_part(offset, buffer);
	free(buffer);
	return NULL;
}

/* Counts the cached pages of a part that lie on a node. */
static unsigned on_node(nowait_file *file, int node)
{
	struct iovec pieces[CHUNK / PAGE + 1];
	uint64_t begin = (uint64_t)node * PART, offset;
	unsigned count = 0;
	size_t piece, pieces_count, byte;
	nowait_loan *loan;

	for (offset = begin; offset < begin + PART; offset += CHUNK) {
		CHECK(nowait_lend(file, offset, CHUNK, &loan) == 0);
		pieces_count = nowait_loan_pieces(loan, pieces, CHUNK / PAGE + 1);
		for (piece = 0; piece < pieces_count; piece++)
			for (byte = 0; byte < pieces[piece].iov_len; byte += PAGE)
				count += node_of((char *)pieces[piece].iov_base + byte) == node;
		nowait_loan_return(loan);
	}
	return count;
}

static void make_file(const char *path)
{
	char *bytes = (char *)calloc(NODES, PART);
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	CHECK(fd >= 0 && write(fd, bytes, NODES * PART) == NODES * PART && fsync(fd) == 0);
	close(fd);
	free(bytes);
}

int main(int argc, char **argv)
{
	int node, numbers[NODES] = {0, 1};
	nowait_options options = NOWAIT_OPTIONS_INIT;

	CHECK(argc == 2 && chdir(argv[1]) == 0);
	make_file("written");
	make_file("read");
	options.cache_bytes = 64u << 20;
	CHECK(nowait_engine_create(&options, &engine) == 0);
	CHECK(nowait_file_open(engine, "written", O_RDWR, 0, NOWAIT_CACHE_USER, &written) == 0);
	CHECK(nowait_file_open(engine, "read", O_RDONLY, 0, NOWAIT_CACHE_USER, &read_file) == 0);
	for (node = 0; node < NODES; node++) {
		pthread_t thread;

		CHECK(pthread_create(&thread, NULL, use, &numbers[node]) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	for (node = 0; node < NODES; node++)
		printf("node %d: written %u, read %u of %u\n", node, on_node(written, node),
		       on_node(read_file, node), PART / PAGE);
	nowait_file_close(read_file);
	nowait_file_close(written);
	nowait_engine_destroy(engine);
	return 0;
}
