/* aio_cancel. */
#include "check.h"

#define BLOCK 4096

/* Starts two reads of an empty pipe. If requests of a descriptor run one after another, the second
 * has not begun, and can be cancelled. */
static void two_reads(int ends[2], struct aiocb blocks[2])
{
	static char bytes[2];

	EQUAL(pipe(ends), 0);
	for (int i = 0; i < 2; i++) {
		blocks[i] = transfer(ends[0], &bytes[i], 1, 0);
		EQUAL(aio_read(&blocks[i]), 0);
	}
}

CASE(aio_cancel, cancels_a_request_that_waits, CONFORMING)
{
	struct aiocb blocks[2];
	int ends[2];

	two_reads(ends, blocks);
	EQUAL(aio_cancel(ends[0], &blocks[1]), AIO_CANCELED);
	EQUAL(aio_error(&blocks[1]), ECANCELED);
	EQUAL(aio_return(&blocks[1]), -1);
	EQUAL(aio_error(&blocks[0]), EINPROGRESS);
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(value_at_end(&blocks[0]), 1);
}

CASE(aio_cancel, without_a_block_cancels_all_of_the_descriptor, NOWAIT)
{
	struct aiocb blocks[2], others[2];
	int ends[2], other[2];

	two_reads(ends, blocks);
	two_reads(other, others);
	EQUAL(aio_cancel(ends[0], NULL), AIO_CANCELED);
	for (int i = 0; i < 2; i++) {
		EQUAL(aio_error(&blocks[i]), ECANCELED);
		EQUAL(aio_error(&others[i]), EINPROGRESS);
	}
	EQUAL(aio_cancel(ends[0], NULL), AIO_ALLDONE);
}

CASE(aio_cancel, of_what_cannot_be_cancelled_lets_it_go_on, CONFORMING)
{
	enum { MANY = 64 };
	static struct aiocb blocks[MANY];
	char *buffer = aligned_alloc(BLOCK, MANY * BLOCK);
	int fd = new_file("file", MANY * BLOCK, O_DIRECT);

	CHECK(buffer);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < MANY; i++) {
			blocks[i] = transfer(fd, buffer + i * BLOCK, BLOCK, (off_t)i * BLOCK);
			EQUAL(aio_read(&blocks[i]), 0);
		}
		int outcome = aio_cancel(fd, NULL), cancelled = 0;

		CHECK(outcome == AIO_CANCELED || outcome == AIO_NOTCANCELED ||
		      outcome == AIO_ALLDONE);
		for (int i = 0; i < MANY; i++) {
			int error = error_at_end(&blocks[i]);

			CHECK(error == 0 || error == ECANCELED);
			EQUAL(aio_return(&blocks[i]), error == 0 ? BLOCK : -1);
			cancelled += error == ECANCELED;
		}
		if (outcome == AIO_ALLDONE)
			EQUAL(cancelled, 0);
	}
}

CASE(aio_cancel, of_what_is_over_is_alldone, CONFORMING)
{
	char buffer[BLOCK];
	int fd = new_file("file", BLOCK, 0);
	struct aiocb block = transfer(fd, buffer, BLOCK, 0);

	EQUAL(aio_cancel(fd, NULL), AIO_ALLDONE);
	EQUAL(aio_read(&block), 0);
	EQUAL(value_at_end(&block), BLOCK);
	EQUAL(aio_cancel(fd, &block), AIO_ALLDONE);
	EQUAL(aio_cancel(fd, NULL), AIO_ALLDONE);
	EQUAL(aio_error(&block), 0);
	EQUAL(aio_return(&block), BLOCK);
}

CASE(aio_cancel, ebadf_is_no_descriptor, CONFORMING)
{
	struct aiocb block = transfer(1000, NULL, 0, 0);

	FAILS(aio_cancel(1000, NULL), EBADF);
	FAILS(aio_cancel(-1, NULL), EBADF);
	FAILS(aio_cancel(1000, &block), EBADF);
}

CASE(aio_cancel, einval_is_a_block_of_another_descriptor, CONFORMING)
{
	struct aiocb blocks[2];
	int ends[2];

	two_reads(ends, blocks);
	FAILS(aio_cancel(ends[1], &blocks[1]), EINVAL);
	EQUAL(aio_error(&blocks[1]), EINPROGRESS);
}

CASE(aio_cancel, the_usual_notice_comes_of_a_cancelled_request, CONFORMING)
{
	struct aiocb blocks[2], third;
	int ends[2];
	char byte;

	block_signal(SIGRTMIN + 1);
	two_reads(ends, blocks);
	third = transfer(ends[0], &byte, 1, 0);
	by_signal(&third, SIGRTMIN + 1, 9);
	EQUAL(aio_read(&third), 0);
	EQUAL(aio_cancel(ends[0], &third), AIO_CANCELED);
	EQUAL(take_signal(SIGRTMIN + 1).si_value.sival_int, 9);
	EQUAL(aio_error(&third), ECANCELED);
}

CASE(aio_cancel, wakes_who_waits_for_the_request, CONFORMING)
{
	struct aiocb blocks[2];
	int ends[2];

	two_reads(ends, blocks);
	EQUAL(aio_cancel(ends[0], &blocks[1]), AIO_CANCELED);
	const struct aiocb *list[] = { &blocks[1] };
	EQUAL(aio_suspend(list, 1, NULL), 0);
}
