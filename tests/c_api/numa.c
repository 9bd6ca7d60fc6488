/* Memory of an engine lies on the NUMA node of the thread that used it first.
 *
 * `numa FOLDER`: the folder supports direct I/O, and the machine has the nodes 0 and 1, each with
 * the processor of its number. Each node has a thread, and both threads live until the end. In its
 * turn, a thread makes a queue, writes its part of a cached file, and reads a file of its own by
 * the queue. (In a shared file, the readahead of one thread would cache blocks of the other.) For
 * each kind of memory the program prints how many pages lie on the thread's node.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <nowait.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LAST_ERROR nowait_error_text()
#include "../check.h"

#define NODES 2
#define PAGE 4096u
#define CHUNK (64u << 10)
/* The part of each thread is whole huge pages, so that no huge page has memory of two threads. */
#define PART (4u << 20)
#define MAPS_MAX (256u << 10)

struct pages {
	unsigned all, own;
};

struct user {
	pthread_t thread;
	int node;
	nowait_file *read;
	/* Memory that the process has mapped since the thread began its turn. */
	struct pages mapped;
};

static nowait_engine *engine;
static nowait_file *written;
static char buffer[CHUNK];
static sem_t turn_is_over, end_has_come;

static void count_page(size_t address, int node, struct pages *pages)
{
	void *page = (void *)(address & ~(size_t)(PAGE - 1));
	int found = -1;

	CHECK(syscall(SYS_move_pages, 0, 1ul, &page, NULL, &found, 0) == 0);
	pages->all += found >= 0;
	pages->own += found == node;
}

static void move_to(int node)
{
	cpu_set_t processors;

	CPU_ZERO(&processors);
	CPU_SET(node, &processors);
	CHECK(sched_setaffinity(0, sizeof(processors), &processors) == 0);
}

/* The buffer is not from malloc: an allocation would change the list. */
static void read_maps(char *text)
{
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t length = 0;
	ssize_t bytes;

	CHECK(fd >= 0);
	while ((bytes = read(fd, text + length, MAPS_MAX - 1 - length)) > 0)
		length += (size_t)bytes;
	CHECK(bytes == 0 && length < MAPS_MAX - 1);
	close(fd);
	text[length] = 0;
}

static void count_mapped(const char *before, struct user *user)
{
	static char text[MAPS_MAX];
	char *line, *rest, first[20], rights[5];
	size_t start, end;

	read_maps(text);
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		CHECK(sscanf(line, "%zx-%zx %4s", &start, &end, rights) == 3);
		snprintf(first, sizeof(first), "%zx-", start);
		if (rights[1] != 'w' || strstr(before, first))
			continue;
		for (; start < end; start += PAGE)
			count_page(start, user->node, &user->mapped);
	}
}

static void write_part(uint64_t begin)
{
	uint64_t offset;

	memset(buffer, 7, CHUNK);
	for (offset = begin; offset < begin + PART; offset += CHUNK)
		CHECK(nowait_write(written, buffer, CHUNK, offset) == CHUNK);
}

static void read_all(nowait_queue *queue, nowait_file *file)
{
	nowait_request request;
	nowait_completion done;
	uint64_t offset;

	for (offset = 0; offset < PART; offset += CHUNK) {
		nowait_prep_read(&request, file, buffer, CHUNK, offset, 0);
		CHECK(nowait_submit(queue, &request, 1) == 1);
		CHECK(nowait_reap(queue, &done, 1, 1, NOWAIT_FOREVER) == 1);
		CHECK(done.result == CHUNK);
	}
}

static void *use(void *argument)
{
	static char before[MAPS_MAX];
	struct user *user = (struct user *)argument;
	nowait_queue *queue;

	move_to(user->node);
	read_maps(before);
	CHECK(nowait_queue_create(engine, 64, &queue) == 0);
	write_part((uint64_t)user->node * PART);
	read_all(queue, user->read);
	count_mapped(before, user);
	sem_post(&turn_is_over);
	sem_wait(&end_has_come);
	nowait_queue_destroy(queue);
	return NULL;
}

static struct pages cached(nowait_file *file, uint64_t begin, int node)
{
	struct iovec pieces[CHUNK / PAGE + 1];
	uint64_t offset;
	struct pages pages = {0, 0};
	size_t piece, count, byte;
	nowait_loan *loan;

	for (offset = begin; offset < begin + PART; offset += CHUNK) {
		CHECK(nowait_lend(file, offset, CHUNK, &loan) == 0);
		count = nowait_loan_pieces(loan, pieces, CHUNK / PAGE + 1);
		for (piece = 0; piece < count; piece++)
			for (byte = 0; byte < pieces[piece].iov_len; byte += PAGE)
				count_page((size_t)pieces[piece].iov_base + byte, node, &pages);
		nowait_loan_return(loan);
	}
	return pages;
}

static nowait_file *make_file(const char *path, size_t length)
{
	char *bytes = (char *)calloc(1, length);
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	nowait_file *file;

	CHECK(fd >= 0 && write(fd, bytes, length) == (ssize_t)length && fsync(fd) == 0);
	close(fd);
	free(bytes);
	CHECK(nowait_file_open(engine, path, O_RDWR, 0, NOWAIT_CACHE_USER, &file) == 0);
	return file;
}

static void show(const char *what, int node, struct pages pages)
{
	printf("%s on node %d: %u of %u\n", what, node, pages.own, pages.all);
}

int main(int argc, char **argv)
{
	struct user users[NODES] = {{.node = 0}, {.node = 1}};
	nowait_options options = NOWAIT_OPTIONS_INIT;
	int node;

	CHECK(argc == 2 && chdir(argv[1]) == 0);
	sem_init(&turn_is_over, 0, 0);
	sem_init(&end_has_come, 0, 0);
	options.cache_bytes = 64u << 20;
	CHECK(nowait_engine_create(&options, &engine) == 0);
	written = make_file("written", NODES * PART);
	users[0].read = make_file("read-0", PART);
	users[1].read = make_file("read-1", PART);
	for (node = 0; node < NODES; node++) {
		CHECK(pthread_create(&users[node].thread, NULL, use, &users[node]) == 0);
		sem_wait(&turn_is_over);
	}
	for (node = 0; node < NODES; node++) {
		show("written", node, cached(written, (uint64_t)node * PART, node));
		show("read", node, cached(users[node].read, 0, node));
		show("mapped", node, users[node].mapped);
		sem_post(&end_has_come);
	}
	for (node = 0; node < NODES; node++) {
		CHECK(pthread_join(users[node].thread, NULL) == 0);
		nowait_file_close(users[node].read);
	}
	nowait_file_close(written);
	nowait_engine_destroy(engine);
	return 0;
}
