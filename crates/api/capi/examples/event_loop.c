/* The program's own event loop: epoll waits for the completions of files and for standard input at
 * once. Each line of input is the number of a 4 KiB block; the answer is the block's checksum.
 *
 *   cc event_loop.c $(pkg-config --cflags --libs nowait) && seq 0 99 | ./a.out FILE
 */
#include <errno.h>
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BLOCK 4096u
#define DEPTH 16u

struct loop {
	nowait_file *file;
	nowait_queue *queue;
	int epoll;
	char *memory; /* DEPTH blocks */
	uint64_t blocks[DEPTH];
	unsigned idle[DEPTH], idle_count;
	char input[64];
	size_t input_length;
	int input_ended;
};

/* Submits a read for each whole line while buffers are free; the rest stays in `input`. */
static int take_lines(struct loop *loop)
{
	char *end;
	nowait_request request;

	while (loop->idle_count > 0 &&
	       (end = (char *)memchr(loop->input, '\n', loop->input_length)) != NULL) {
		unsigned number = loop->idle[loop->idle_count - 1];
		size_t length = (size_t)(end + 1 - loop->input);
		int accepted;

		*end = 0;
		loop->blocks[number] = strtoull(loop->input, NULL, 10);
		nowait_prep_read(&request, loop->file, loop->memory + number * BLOCK, BLOCK,
				 loop->blocks[number] * BLOCK, number);
		accepted = nowait_submit(loop->queue, &request, 1);
		if (accepted < 0)
			return accepted;
		loop->idle_count--;
		loop->input_length -= length;
		memmove(loop->input, end + 1, loop->input_length);
	}
	/* A line that does not fit is not a number. */
	return loop->idle_count > 0 && loop->input_length == sizeof(loop->input) ? -EINVAL : 0;
}

static int read_input(struct loop *loop)
{
	size_t room = sizeof(loop->input) - loop->input_length;
	ssize_t count = room ? read(STDIN_FILENO, loop->input + loop->input_length, room) : 0;

	if (count < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (room > 0 && count == 0)
		loop->input_ended = 1;
	loop->input_length += (size_t)count;
	return take_lines(loop);
}

/* Answers the reads that have ended. Does not wait for others. */
static int answer(struct loop *loop)
{
	nowait_completion done[4];
	int count, index;

	count = nowait_reap(loop->queue, done, 4, 0, 0);
	for (index = 0; index < count; index++) {
		unsigned number = (unsigned)done[index].user_data, sum = 0;
		const unsigned char *bytes =
			(const unsigned char *)loop->memory + number * BLOCK;
		int64_t at;

		if (done[index].result < 0)
			return (int)done[index].result;
		for (at = 0; at < done[index].result; at++)
			sum = sum * 31 + bytes[at];
		printf("%llu %08x\n", (unsigned long long)loop->blocks[number], sum);
		loop->idle[loop->idle_count++] = number;
	}
	return count < 0 ? count : take_lines(loop);
}

/* Waits for input only while `input` has room for it. */
static int watch_input(struct loop *loop, int *watched)
{
	int wanted = !loop->input_ended && loop->idle_count > 0 &&
		     loop->input_length < sizeof(loop->input);
	struct epoll_event event;

	memset(&event, 0, sizeof(event));
	event.events = EPOLLIN;
	event.data.fd = STDIN_FILENO;
	if (wanted == *watched)
		return 0;
	*watched = wanted;
	return epoll_ctl(loop->epoll, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, STDIN_FILENO, &event)
		       ? -errno
		       : 0;
}

static int run(struct loop *loop)
{
	struct epoll_event event, events[2];
	int watched = 0, count, result;

	memset(&event, 0, sizeof(event));
	event.events = EPOLLIN;
	event.data.fd = nowait_queue_fd(loop->queue);
	if (event.data.fd < 0)
		return event.data.fd;
	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, event.data.fd, &event))
		return -errno;
	while (!loop->input_ended || loop->idle_count < DEPTH) {
		result = watch_input(loop, &watched);
		if (result)
			return result;
		count = epoll_wait(loop->epoll, events, 2, -1);
		if (count < 0 && errno != EINTR)
			return -errno;
		while (count-- > 0) {
			result = events[count].data.fd == STDIN_FILENO ? read_input(loop)
								       : answer(loop);
			if (result)
				return result;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct loop loop;
	nowait_engine *engine = NULL;
	int result;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE < NUMBERS\n", argv[0]);
		return 2;
	}
	memset(&loop, 0, sizeof(loop));
	loop.epoll = epoll_create1(EPOLL_CLOEXEC);
	loop.memory = (char *)aligned_alloc(BLOCK, DEPTH * BLOCK);
	while (loop.idle_count < DEPTH) {
		loop.idle[loop.idle_count] = loop.idle_count;
		loop.idle_count++;
	}
	result = loop.epoll < 0 || !loop.memory ? -ENOMEM : nowait_engine_create(NULL, &engine);
	if (!result)
		result = nowait_file_open(engine, argv[1], O_RDONLY, 0, NOWAIT_CACHE_USER,
					  &loop.file);
	if (!result)
		result = nowait_queue_create(engine, DEPTH, &loop.queue);
	if (!result)
		result = run(&loop);
	if (result)
		fprintf(stderr, "%s: %s\n", nowait_strerror(result), nowait_error_text());
	nowait_queue_destroy(loop.queue);
	nowait_file_close(loop.file);
	nowait_engine_destroy(engine);
	free(loop.memory);
	if (loop.epoll >= 0)
		close(loop.epoll);
	return result ? 1 : 0;
}
