/* Shared by the programs about processes and threads: declarations of libaio's calls, and requests
 * with known results.
 */
#ifndef PROCESS_CHECK_H
#define PROCESS_CHECK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../check.h"

#define BLOCK 4096
#define MANY 16

struct iocb {
	void *data;
	unsigned key, rw_flags;
	short opcode, reqprio;
	int fildes;
	unsigned long buffer, bytes;
	long offset, reserved;
	unsigned flags, resfd;
};

struct event {
	void *data;
	struct iocb *obj;
	long res, res2;
};

extern int io_setup(int nr, void **ctx);
extern int io_destroy(void *ctx);
extern int io_cancel(void *ctx, struct iocb *iocb, struct event *event);
extern int io_submit(void *ctx, long nr, struct iocb **iocbs);
extern int io_getevents(void *ctx, long min, long nr, struct event *events, void *timeout);
extern int io_pgetevents(void *ctx, long min, long nr, struct event *events, void *timeout,
			 sigset_t *mask);

struct work {
	void *ctx;
	int fd, ends[2];
	char *bytes;
	struct iocb writes[MANY], poll;
};

static inline void begin_work(struct work *work, const char *path, char byte)
{
	struct iocb *list[MANY + 1] = { &work->poll };

	memset(work, 0, sizeof *work);
	CHECK(io_setup(MANY + 1, &work->ctx) == 0);
	CHECK((work->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0);
	CHECK(pipe2(work->ends, O_CLOEXEC) == 0);
	CHECK((work->bytes = aligned_alloc(BLOCK, BLOCK)) != NULL);
	memset(work->bytes, byte, BLOCK);
	work->poll.opcode = 5;
	work->poll.fildes = work->ends[0];
	work->poll.buffer = POLLIN;
	for (int i = 0; i < MANY; i++) {
		work->writes[i].opcode = 1;
		work->writes[i].fildes = work->fd;
		work->writes[i].buffer = (unsigned long)work->bytes;
		work->writes[i].bytes = BLOCK;
		work->writes[i].offset = (long)i * BLOCK;
		list[i + 1] = &work->writes[i];
	}
	CHECK(io_submit(work->ctx, MANY + 1, list) == MANY + 1);
}

static inline void check_file(int fd, char byte)
{
	char found[BLOCK];

	for (int i = 0; i < MANY; i++) {
		CHECK(pread(fd, found, BLOCK, (off_t)i * BLOCK) == BLOCK);
		CHECK(found[0] == byte && found[BLOCK - 1] == byte);
	}
}

/* io_getevents fails with EINTR when the process was stopped. */
static inline void take_event(void *ctx, struct event *event)
{
	int got;

	do
		got = io_getevents(ctx, 1, 1, event, NULL);
	while (got == -EINTR);
	CHECK(got == 1);
}

/* Checks that the event of each request arrives once, and the event of the poll only after a write
 * to the pipe. Then ends the work. */
static inline void end_work(struct work *work)
{
	struct timespec now = { 0, 0 };
	struct event event;
	long seen = 0;

	for (int i = 0; i < MANY; i++) {
		take_event(work->ctx, &event);
		CHECK(event.obj >= work->writes && event.obj < work->writes + MANY);
		CHECK(event.res == BLOCK);
		CHECK((seen & 1L << (event.obj - work->writes)) == 0);
		seen |= 1L << (event.obj - work->writes);
	}
	CHECK(io_getevents(work->ctx, 0, 1, &event, &now) == 0);
	CHECK(write(work->ends[1], "x", 1) == 1);
	take_event(work->ctx, &event);
	CHECK(event.obj == &work->poll && event.res & POLLIN);
	check_file(work->fd, work->bytes[0]);
	CHECK(io_destroy(work->ctx) == 0);
	free(work->bytes);
	close(work->fd);
	close(work->ends[0]);
	close(work->ends[1]);
}

static inline int is_asleep(pid_t process, pid_t thread)
{
	char name[64], line[512];
	FILE *about;
	int ret;

	snprintf(name, sizeof name, "/proc/%d/task/%d/stat", process, thread);
	about = fopen(name, "r");
	ret = about && fgets(line, sizeof line, about) && strstr(line, ") S ");
	if (about)
		fclose(about);
	return ret;
}

static inline void until_asleep(pid_t process, volatile pid_t *thread)
{
	while (*thread == 0 || !is_asleep(process, *thread))
		sched_yield();
}

#endif
