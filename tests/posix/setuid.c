/* setuid(2) and similar calls, which wait until every thread of the process has made the same
 * call. */
#include "check.h"

#include <grp.h>

#define PART 65536
#define PARTS 16

static int ends[2];

static void *wait_for(void *block)
{
	EQUAL(value_at_end(block), 1);
	return NULL;
}

static void change_identity(void)
{
	gid_t groups[2] = { 7, 9 };

	EQUAL(setgid(getgid()), 0);
	EQUAL(setuid(geteuid()), 0);
	if (geteuid() != 0)
		return;
	EQUAL(setgroups(2, groups), 0);
	EQUAL(seteuid(12345), 0);
	EQUAL(seteuid(0), 0);
}

static void *change_often(void *unused)
{
	for (int i = 0; i < 50; i++)
		change_identity();
	return unused;
}

CASE(setuid, returns_while_requests_are_in_flight, CONFORMING)
{
	static char data[PARTS][PART], byte;
	struct aiocb silent, blocks[PARTS];
	int fd = new_file("file", 4096, 0);
	pthread_t waiter, changer;

	EQUAL(pipe(ends), 0);
	silent = transfer(ends[0], &byte, 1, 0);
	EQUAL(aio_read(&silent), 0);
	waiter = thread_of(wait_for, &silent);
	change_identity();
	changer = thread_of(change_often, NULL);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < PARTS; i++) {
			blocks[i] = transfer(fd, data[i], PART, (off_t)i * PART);
			EQUAL(aio_write(&blocks[i]), 0);
		}
		for (int i = 0; i < PARTS; i++)
			EQUAL(value_at_end(&blocks[i]), PART);
	}
	EQUAL(pthread_join(changer, NULL), 0);
	EQUAL(write(ends[1], "x", 1), 1);
	EQUAL(pthread_join(waiter, NULL), 0);
	change_identity();
}

static volatile sig_atomic_t noticed;

static void notice(union sigval value)
{
	(void)value;
	change_identity();
	noticed = 1;
}

/* The C library makes the threads for notifications. The threads are idle between notifications. */
CASE(setuid, returns_in_a_notification_and_while_threads_stand_by, CONFORMING)
{
	char byte = 'x';
	int fd = new_file("file", 4096, 0);
	struct aiocb block = transfer(fd, &byte, 1, 0);

	by_thread(&block, notice, NULL);
	for (int round = 0; round < 20; round++) {
		noticed = 0;
		EQUAL(aio_write(&block), 0);
		EQUAL(value_at_end(&block), 1);
		while (!noticed)
			sched_yield();
		change_identity();
	}
}
