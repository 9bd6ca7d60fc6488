/* In a shortage of memory, calls and requests may fail with EAGAIN or ENOMEM, and lio_listio also
 * with EIO. Each accepted request ends once. When enough memory is free again, all requests
 * succeed.
 *
 * shortage FILE LIMIT WHEN KIB [posix]: LIMIT is `as`, `data` or `memlock`; WHEN is `load` (the
 * program executes itself again), `start` (before the first io_setup) or `started`; KIB is the
 * memory that is left.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <fcntl.h>
#include <libaio.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "../check.h"

#define KINDS 8
#define BATCH 32
#define BATCHES 24
#define BLOCK 4096
#define BLOCKS 64

/* The program itself does not call malloc, which could fail in a shortage. */
static char memory[BATCH][BLOCK] __attribute__((aligned(BLOCK)));
static struct iovec vectors[BATCH];
static struct iocb blocks[BATCH];
static struct io_event events[BATCH];
static int buffered, direct, ends[2];

static bool is_shortage(int err) { return err == -EAGAIN || err == -ENOMEM; }

static int resource;

static rlim_t in_use(void)
{
	char text[256];
	int status = open("/proc/self/statm", O_RDONLY);
	unsigned long size = 0, data = 0;

	CHECK(status >= 0);
	CHECK(read(status, text, sizeof text - 1) > 0);
	close(status);
	CHECK(sscanf(text, "%lu %*u %*u %*u %*u %lu", &size, &data) == 2);
	/* For RLIMIT_MEMLOCK all memory counts, because mlockall(2) locks it. */
	return (rlim_t)(resource == RLIMIT_DATA ? data : size) * BLOCK;
}

static void set_limit(rlim_t soft)
{
	struct rlimit limit;

	CHECK(getrlimit(resource, &limit) == 0);
	limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
	CHECK(setrlimit(resource, &limit) == 0);
}

static void leave(long kib) { set_limit(in_use() + (rlim_t)kib * 1024); }

static void lift(void) { set_limit(RLIM_INFINITY); }

static void prepare(int index, int kind)
{
	struct iocb *block = &blocks[index];
	long long at = (long long)(index % BLOCKS) * BLOCK;

	vectors[index] = (struct iovec){ memory[index], BLOCK };
	switch (kind) {
	case 0: io_prep_pread(block, buffered, memory[index], BLOCK, at); break;
	case 1: io_prep_pwrite(block, buffered, memory[index], BLOCK, at); break;
	case 2: io_prep_preadv(block, buffered, &vectors[index], 1, at); break;
	case 3: io_prep_pwritev(block, buffered, &vectors[index], 1, at); break;
	case 4: io_prep_pread(block, direct, memory[index], BLOCK, at); break;
	case 5: io_prep_pwrite(block, direct, memory[index], BLOCK, at); break;
	case 6: io_prep_fdsync(block, buffered); break;
	case 7: io_prep_poll(block, ends[1], POLLOUT); break;
	}
	block->data = (void *)(long)index;
}

static bool has_ended_well(const struct io_event *event, int kind)
{
	long res = (long)event->res;

	if (kind == 6)
		return res == 0;
	return kind == 7 ? res & POLLOUT : res == BLOCK;
}

/* Each accepted request must end once, with success or, if `is_short`, with EAGAIN or ENOMEM. */
static int run_batch(io_context_t context, int kind, bool is_short)
{
	struct iocb *list[BATCH];
	bool ended[BATCH] = { false };
	int accepted = 0, taken = 0;

	for (int index = 0; index < BATCH; index++) {
		prepare(index, kind);
		list[index] = &blocks[index];
	}
	while (accepted < BATCH) {
		int ret = io_submit(context, BATCH - accepted, list + accepted);

		if (ret < 0 && is_short) {
			CHECK(is_shortage(ret));
			break;
		}
		errno = -ret;
		CHECK(ret > 0);
		accepted += ret;
	}
	while (taken < accepted) {
		int ret = io_getevents(context, 1, BATCH, events, NULL);

		errno = -ret;
		CHECK(ret > 0 && taken + ret <= accepted);
		for (int index = 0; index < ret; index++) {
			long which = (long)events[index].data;
			bool is_well = has_ended_well(&events[index], kind);

			errno = -(int)events[index].res;
			CHECK(which >= 0 && which < accepted && !ended[which]);
			CHECK(is_well || (is_short && is_shortage((int)events[index].res)));
			ended[which] = true;
		}
		taken += ret;
	}
	return accepted;
}

static int run_kinds(io_context_t context, bool is_short)
{
	int accepted = 0;

	for (int batch = 0; batch < BATCHES; batch++)
		accepted += run_batch(context, batch % KINDS, is_short);
	return accepted;
}

static struct aiocb requests[BATCH];

static void await(struct aiocb *request, bool is_short)
{
	const struct aiocb *list[] = { request };
	int err;

	while ((err = aio_error(request)) == EINPROGRESS)
		CHECK(aio_suspend(list, 1, NULL) == 0);
	errno = err;
	CHECK(err == 0 || (is_short && is_shortage(-err)));
	CHECK(err != 0 || aio_return(request) == BLOCK);
}

static void run_posix(bool is_short)
{
	struct aiocb *list[BATCH];
	int err;

	for (int index = 0; index < BATCH; index++) {
		list[index] = &requests[index];
		requests[index] = (struct aiocb){ .aio_fildes = index % 3 ? buffered : direct,
						  .aio_buf = memory[index],
						  .aio_nbytes = BLOCK,
						  .aio_offset = index * BLOCK,
						  .aio_lio_opcode = index % 2 ? LIO_READ : LIO_WRITE };
	}
	for (int index = 0; index < BATCH; index++) {
		err = (index % 2 ? aio_read : aio_write)(list[index]);
		CHECK(err == 0 || (is_short && is_shortage(-errno)));
		if (err == 0)
			await(list[index], is_short);
	}
	err = lio_listio(LIO_WAIT, list, BATCH, NULL);
	CHECK(err == 0 || (is_short && (is_shortage(-errno) || errno == EIO)));
	for (int index = 0; index < BATCH; index++)
		await(list[index], is_short);
}

static io_context_t started(bool is_short)
{
	io_context_t context = NULL;
	int ret = io_setup(2 * BATCH, &context);

	errno = -ret;
	CHECK(ret == 0 || (is_short && is_shortage(ret)));
	return ret == 0 ? context : NULL;
}

static void end(io_context_t context)
{
	if (context)
		CHECK(io_destroy(context) == 0);
}

static void all_works(bool is_posix)
{
	io_context_t context = started(false);

	CHECK(run_kinds(context, false) == BATCHES * BATCH);
	if (is_posix)
		run_posix(false);
	end(context);
}

static void open_files(const char *path)
{
	buffered = open(path, O_RDWR | O_CREAT, 0600);
	CHECK(buffered >= 0 && ftruncate(buffered, BLOCKS * BLOCK) == 0);
	for (int block = 0; block < BLOCKS; block++)
		CHECK(pwrite(buffered, memory, BLOCK, block * BLOCK) == BLOCK);
	/* If the file system does not support direct I/O, `direct` is the buffered descriptor. */
	direct = open(path, O_RDWR | O_DIRECT);
	if (direct < 0)
		direct = buffered;
	CHECK(pipe(ends) == 0);
}

int main(int argc, char **argv)
{
	io_context_t context = NULL;
	bool is_posix;
	long kib;

	CHECK(argc >= 5);
	is_posix = argc > 5;
	kib = atol(argv[4]);
	resource = strcmp(argv[2], "data") == 0 ? RLIMIT_DATA
		 : strcmp(argv[2], "memlock") == 0 ? RLIMIT_MEMLOCK : RLIMIT_AS;
	if (strcmp(argv[3], "load") == 0) {
		leave(kib);
		argv[3] = "loaded";
		execv("/proc/self/exe", argv);
		CHECK(!"execv");
	}
	open_files(argv[1]);
	if (strcmp(argv[3], "started") == 0) {
		context = started(false);
		run_batch(context, 0, false);
	}
	if (resource == RLIMIT_MEMLOCK) {
		CHECK(setuid(65534) == 0);
		lift();
		CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	}
	if (strcmp(argv[3], "loaded") != 0)
		leave(kib);
	if (!context)
		context = started(true);
	if (context)
		run_kinds(context, true);
	if (is_posix)
		run_posix(true);
	end(context);
	end(started(true));
	if (resource == RLIMIT_MEMLOCK)
		CHECK(munlockall() == 0);
	lift();
	all_works(is_posix);
	return 0;
}
