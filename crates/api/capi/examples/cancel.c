/* Copies standard input to standard output until it ends or is silent for the given number of
 * milliseconds; then cancels the reads that wait. Bytes that a cancelled read has received are not
 * lost.
 *
 *   cc cancel.c $(pkg-config --cflags --libs nowait) && some-program | ./a.out 500
 */
#include <errno.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READS 2u /* in flight at a time; they take turns */
#define SIZE 4096u

struct copy {
	nowait_queue *queue;
	char memory[READS][SIZE];
	nowait_completion ended[READS];
	int has_ended[READS];
	uint64_t submitted, written, bytes;
	int over, silent;
};

/* The number of a read is its user_data. */
static int read_more(struct copy *copy)
{
	nowait_request request;
	int accepted;

	nowait_prep_read_stream(&request, STDIN_FILENO, copy->memory[copy->submitted % READS], SIZE,
				copy->submitted);
	accepted = nowait_submit(copy->queue, &request, 1);
	if (accepted < 0)
		return accepted;
	copy->submitted++;
	return 0;
}

/* Asks for the early end of all reads. The queue borrows their memory until they have ended. */
static void give_up(struct copy *copy)
{
	uint64_t number;

	copy->over = copy->silent = 1;
	for (number = copy->written; number < copy->submitted; number++)
		nowait_cancel(copy->queue, number); /* -ENOENT: it is over already, reap it */
}

static int write_out(const char *bytes, int64_t count)
{
	while (count > 0) {
		ssize_t done = write(STDOUT_FILENO, bytes, (size_t)count);

		if (done < 0 && errno != EINTR)
			return -errno;
		if (done > 0) {
			bytes += done;
			count -= done;
		}
	}
	return 0;
}

/* Writes the bytes of the oldest read. */
static int write_oldest(struct copy *copy)
{
	unsigned slot = (unsigned)(copy->written % READS);
	int64_t count = copy->ended[slot].result;
	int result;

	copy->has_ended[slot] = 0;
	copy->written++;
	if (count == -ECANCELED)
		return 0;
	if (count < 0)
		return (int)count;
	if (count == 0)
		copy->over = 1;
	copy->bytes += (uint64_t)count;
	result = write_out(copy->memory[slot], count);
	return result || copy->over ? result : read_more(copy);
}

static int run(struct copy *copy, int64_t limit_ns)
{
	nowait_completion done[READS];
	int result = 0, count, index;

	while (!result && copy->submitted < READS)
		result = read_more(copy);
	while (!result && copy->written < copy->submitted) {
		count = nowait_reap(copy->queue, done, READS, 1,
				    copy->over ? NOWAIT_FOREVER : limit_ns);
		if (count < 0)
			return count;
		if (count == 0)
			give_up(copy);
		for (index = 0; index < count; index++) {
			unsigned slot = (unsigned)(done[index].user_data % READS);

			copy->ended[slot] = done[index];
			copy->has_ended[slot] = 1;
		}
		while (!result && copy->written < copy->submitted &&
		       copy->has_ended[copy->written % READS])
			result = write_oldest(copy);
	}
	return result;
}

int main(int argc, char **argv)
{
	static struct copy copy;
	nowait_engine *engine = NULL;
	int result;

	if (argc != 2) {
		fprintf(stderr, "usage: %s MILLISECONDS < FROM > TO\n", argv[0]);
		return 2;
	}
	result = nowait_engine_create(NULL, &engine);
	if (!result)
		result = nowait_queue_create(engine, READS, &copy.queue);
	if (!result)
		result = run(&copy, strtoll(argv[1], NULL, 10) * 1000000);
	if (result)
		fprintf(stderr, "%s: %s\n", nowait_strerror(result), nowait_error_text());
	else
		fprintf(stderr, "%llu bytes, then %s\n", (unsigned long long)copy.bytes,
			copy.silent ? "silence" : "the end");
	nowait_queue_destroy(copy.queue);
	nowait_engine_destroy(engine);
	return result ? 1 : 0;
}
