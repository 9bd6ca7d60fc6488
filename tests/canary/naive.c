/* A libaio with deliberate mistakes, which the tests must notice. The library carries out requests
 * only when a thread reaps, in reverse order. A request uses the file that its descriptor number
 * means at that time, through a duplicate that the library closes again. A request has the
 * credentials of the thread that made the context. An fsync does nothing. A plausible library
 * could make each of these mistakes. */
#define _GNU_SOURCE
#include <errno.h>
#include <libaio.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define QUEUE_MAX 4096

struct naive {
	unsigned header[8]; /* looks like the kernel's ring, empty and without its magic number */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t worker;
	struct iocb copies[QUEUE_MAX], *originals[QUEUE_MAX];
	int queued, wanted, ended;
	struct io_event done[QUEUE_MAX];
	int finished;
};

static long carry_out(struct iocb *iocb)
{
	struct iovec part = { iocb->u.c.buf, iocb->u.c.nbytes };
	int fd = dup(iocb->aio_fildes);
	long rc = fd < 0 ? -1 : 0;

	if (!rc && iocb->aio_lio_opcode == IO_CMD_PREAD)
		rc = preadv2(fd, &part, 1, iocb->u.c.offset, iocb->aio_rw_flags);
	else if (!rc && iocb->aio_lio_opcode == IO_CMD_PWRITE)
		rc = pwritev2(fd, &part, 1, iocb->u.c.offset, iocb->aio_rw_flags);
	rc = rc < 0 ? -errno : rc;
	close(fd);
	return rc;
}

static void *work(void *argument)
{
	struct naive *naive = argument;

	pthread_mutex_lock(&naive->lock);
	while (!naive->ended) {
		while (naive->wanted && naive->queued > 0) {
			struct iocb *iocb = &naive->copies[--naive->queued];
			struct io_event *event = &naive->done[naive->finished++];

			event->data = iocb->data;
			event->obj = naive->originals[naive->queued];
			event->res = carry_out(iocb);
			event->res2 = 0;
		}
		naive->wanted = 0;
		pthread_cond_broadcast(&naive->changed);
		pthread_cond_wait(&naive->changed, &naive->lock);
	}
	pthread_mutex_unlock(&naive->lock);
	return NULL;
}

int io_setup(int max, io_context_t *context)
{
	struct naive *naive = calloc(1, sizeof(*naive));

	(void)max;
	pthread_mutex_init(&naive->lock, NULL);
	pthread_cond_init(&naive->changed, NULL);
	pthread_create(&naive->worker, NULL, work, naive);
	*context = (io_context_t)naive;
	return 0;
}

int io_submit(io_context_t context, long nr, struct iocb **iocbs)
{
	struct naive *naive = (struct naive *)context;
	long at;

	pthread_mutex_lock(&naive->lock);
	for (at = 0; at < nr && naive->queued < QUEUE_MAX; at++) {
		naive->originals[naive->queued] = iocbs[at];
		naive->copies[naive->queued++] = *iocbs[at];
	}
	pthread_mutex_unlock(&naive->lock);
	return at;
}

int io_getevents(io_context_t context, long min, long nr, struct io_event *events,
		 struct timespec *timeout)
{
	struct naive *naive = (struct naive *)context;
	int taken = 0;

	(void)min, (void)timeout;
	pthread_mutex_lock(&naive->lock);
	naive->wanted = 1;
	pthread_cond_broadcast(&naive->changed);
	while (naive->wanted)
		pthread_cond_wait(&naive->changed, &naive->lock);
	while (taken < nr && naive->finished > 0)
		events[taken++] = naive->done[--naive->finished];
	pthread_mutex_unlock(&naive->lock);
	return taken;
}

int io_destroy(io_context_t context)
{
	struct naive *naive = (struct naive *)context;

	pthread_mutex_lock(&naive->lock);
	naive->ended = 1;
	pthread_cond_broadcast(&naive->changed);
	pthread_mutex_unlock(&naive->lock);
	pthread_join(naive->worker, NULL);
	return 0;
}
