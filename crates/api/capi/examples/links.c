/* A log that is valid after a crash: each record is durable before the mark that counts it, and a
 * record that could not be written is not counted. The steps are linked, so no thread waits between
 * them.
 *
 *   cc links.c $(pkg-config --cflags --libs nowait) && ./a.out LOG 100
 */
#include <errno.h>
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>

#define RECORD 4096u
#define STEPS 4

/* Prepares the four linked steps that add a record. The first block of the log holds the mark,
 * which is the number of valid records. */
static void prepare(nowait_request *steps, nowait_file *log, const char *record,
		    const uint64_t *mark)
{
	uint64_t at = *mark * RECORD;
	int step;

	nowait_prep_write(&steps[0], log, record, RECORD, at, 0);
	nowait_prep_sync_range(&steps[1], log, at, RECORD, 1);
	nowait_prep_write(&steps[2], log, mark, sizeof(*mark), 0, 2);
	nowait_prep_datasync(&steps[3], log, 3);
	for (step = 0; step < STEPS - 1; step++)
		steps[step].flags = NOWAIT_LINK;
}

/* Adds a record. If a step fails, prints how many steps did not begin; returns an error number. */
static int add(nowait_queue *queue, nowait_file *log, const char *record, uint64_t mark)
{
	nowait_request steps[STEPS];
	nowait_completion done[STEPS];
	int64_t results[STEPS];
	int count, step, skipped = 0;

	prepare(steps, log, record, &mark);
	count = nowait_submit(queue, steps, STEPS);
	if (count < 0)
		return count;
	count = nowait_reap(queue, done, STEPS, STEPS, NOWAIT_FOREVER);
	if (count < 0)
		return count;
	for (step = 0; step < count; step++)
		results[done[step].user_data] = done[step].result;
	for (step = 0; step < STEPS; step++)
		skipped += results[step] == -ECANCELED;
	if (!skipped && results[STEPS - 1] == 0)
		return 0;
	/* A write of only a part of the record also fails the link. Then the file is full. */
	fprintf(stderr, "record %llu: %d steps were not begun\n", (unsigned long long)mark, skipped);
	return results[0] < 0 ? (int)results[0] : -ENOSPC;
}

int main(int argc, char **argv)
{
	nowait_engine *engine = NULL;
	nowait_file *log = NULL;
	nowait_queue *queue = NULL;
	static char record[RECORD];
	uint64_t number, count;
	int result;

	if (argc != 3) {
		fprintf(stderr, "usage: %s LOG COUNT\n", argv[0]);
		return 2;
	}
	count = strtoull(argv[2], NULL, 10);
	result = nowait_engine_create(NULL, &engine);
	if (!result)
		result = nowait_file_open(engine, argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644,
					  NOWAIT_CACHE_HOST, &log);
	if (!result)
		result = nowait_queue_create(engine, STEPS, &queue);
	for (number = 1; !result && number <= count; number++) {
		memset(record, (int)number, RECORD);
		result = add(queue, log, record, number);
	}
	if (result)
		fprintf(stderr, "%s\n", nowait_strerror(result));
	else
		printf("%llu records\n", (unsigned long long)count);
	nowait_queue_destroy(queue);
	nowait_file_close(log);
	nowait_engine_destroy(engine);
	return result ? 1 : 0;
}
