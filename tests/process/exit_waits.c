/* A library whose destructor waits for requests of POSIX AIO that are in flight when main returns,
 * and a program that is linked with the library.
 */
#define _GNU_SOURCE
#include "../check.h"
#include <aio.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>

#define LEN (16 << 20)

extern void begin(const char *path);

#ifdef LIBRARY

static struct aiocb requests[2];
static int ends[2];
static char byte;

static void *waits(void *request)
{
	const struct aiocb *list[] = { request };

	while (aio_error(list[0]) == EINPROGRESS)
		CHECK(aio_suspend(list, 1, NULL) == 0);
	return NULL;
}

void begin(const char *path)
{
	CHECK(pipe(ends) == 0);
	requests[0].aio_fildes = ends[0];
	requests[0].aio_buf = &byte;
	requests[0].aio_nbytes = 1;
	requests[1].aio_fildes = open(path, O_WRONLY | O_CREAT, 0600);
	requests[1].aio_buf = calloc(1, LEN);
	requests[1].aio_nbytes = LEN;
	for (int i = 0; i < 2; i++)
		requests[i].aio_sigevent.sigev_notify = SIGEV_NONE;
	CHECK(aio_read(&requests[0]) == 0 && aio_write(&requests[1]) == 0);
}

/* The read cannot end before this function runs. */
__attribute__((destructor)) static void end(void)
{
	pthread_t thread;

	CHECK(aio_error(&requests[0]) == EINPROGRESS);
	CHECK(pthread_create(&thread, NULL, waits, &requests[0]) == 0);
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(aio_return(&requests[0]) == 1 && byte == 'x');
	waits(&requests[1]);
	CHECK(aio_return(&requests[1]) == LEN);
}

#else

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	begin(argv[1]);
	return 0;
}

#endif
