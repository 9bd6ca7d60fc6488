/* Copies a file with 32 requests in flight. Each buffer goes round: a read fills it, a write
 * empties it, and the next read fills it again.
 *
 *   cc copy.c $(pkg-config --cflags --libs nowait) && ./a.out FROM TO
 */
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>

#define DEPTH 32
#define CHUNK (256u << 10)

/* A buffer and its current use; its number is the user_data of its requests. */
struct slot {
	char *buffer;
	uint64_t offset;
	/* Bytes of the request, and bytes of the chunk that are not read yet. */
	size_t length, left;
	int writing;
};

struct copy {
	nowait_file *from, *to;
	nowait_queue *queue;
	struct slot slots[DEPTH];
	/* Offset of the next read, and size of the source. */
	uint64_t next, size;
	uint64_t copied;
	int in_flight;
};

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, nowait_error_text());
	return -1;
}

static int submit(struct copy *copy, const nowait_request *request)
{
	/* There are as many buffers as places in the queue, so that it is never full. */
	if (nowait_submit(copy->queue, request, 1) != 1)
		return failed("submit");
	copy->in_flight++;
	return 0;
}

static int read_on(struct copy *copy, unsigned number)
{
	struct slot *slot = &copy->slots[number];
	nowait_request request;

	slot->writing = 0;
	nowait_prep_read(&request, copy->from, slot->buffer, slot->left, slot->offset, number);
	return submit(copy, &request);
}

static int read_next(struct copy *copy, unsigned number)
{
	struct slot *slot = &copy->slots[number];

	if (copy->next >= copy->size)
		return 0;
	slot->offset = copy->next;
	slot->left = CHUNK;
	copy->next += CHUNK;
	return read_on(copy, number);
}

/* Starts the next request on a buffer whose request is over. */
static int go_on(struct copy *copy, const nowait_completion *done)
{
	unsigned number = (unsigned)done->user_data;
	struct slot *slot = &copy->slots[number];
	nowait_request request;

	copy->in_flight--;
	if (done->result < 0)
		return failed(slot->writing ? "write" : "read");
	if (slot->writing) {
		if ((uint64_t)done->result != slot->length) {
			fprintf(stderr, "a write that is short without an error\n");
			return -1;
		}
		copy->copied += slot->length;
		slot->offset += slot->length;
		/* The read was short, for example before bytes that cannot be read. The next read
		 * then returns the error. */
		if (slot->left > 0 && slot->offset < copy->size)
			return read_on(copy, number);
		return read_next(copy, number);
	}
	/* Only a read of 0 bytes is the end: the file has become shorter. */
	slot->length = (size_t)done->result;
	slot->left -= slot->length;
	slot->writing = 1;
	if (slot->length == 0)
		return 0;
	nowait_prep_write(&request, copy->to, slot->buffer, slot->length, slot->offset, number);
	return submit(copy, &request);
}

static int run(struct copy *copy)
{
	nowait_completion done[DEPTH];
	int count, index;
	unsigned number;

	for (number = 0; number < DEPTH; number++) {
		copy->slots[number].buffer = (char *)malloc(CHUNK);
		if (!copy->slots[number].buffer || read_next(copy, number))
			return -1;
	}
	while (copy->in_flight > 0) {
		count = nowait_reap(copy->queue, done, DEPTH, 1, NOWAIT_FOREVER);
		if (count < 0)
			return failed("reap");
		for (index = 0; index < count; index++)
			if (go_on(copy, &done[index]))
				return -1;
	}
	return nowait_file_sync(copy->to) ? failed("sync") : 0;
}

int main(int argc, char **argv)
{
	struct copy copy;
	nowait_engine *engine = NULL;
	unsigned number;
	int result = -1;

	if (argc != 3) {
		fprintf(stderr, "usage: %s FROM TO\n", argv[0]);
		return 2;
	}
	memset(&copy, 0, sizeof(copy));
	if (nowait_engine_create(NULL, &engine) ||
	    nowait_file_open(engine, argv[1], O_RDONLY, 0, NOWAIT_CACHE_USER, &copy.from) ||
	    nowait_file_open(engine, argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0666,
			     NOWAIT_CACHE_USER, &copy.to) ||
	    nowait_file_size(copy.from, &copy.size) ||
	    nowait_queue_create(engine, DEPTH, &copy.queue))
		failed("start");
	else
		result = run(&copy);
	/* Waits for the requests in flight. Until then the queue borrows the buffers. */
	nowait_queue_destroy(copy.queue);
	for (number = 0; number < DEPTH; number++)
		free(copy.slots[number].buffer);
	nowait_file_close(copy.from);
	nowait_file_close(copy.to);
	nowait_engine_destroy(engine);
	if (result == 0)
		printf("%llu bytes\n", (unsigned long long)copy.copied);
	return result ? 1 : 0;
}
