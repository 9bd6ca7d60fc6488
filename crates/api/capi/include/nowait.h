/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/**
 * nowait: asynchronous file I/O for Linux whose submit does not wait for data.
 *
 *   nowait_engine ──── nowait_file ──── nowait_read, nowait_write, nowait_sync …   these block
 *     backend, threads     │
 *                          └── nowait_queue ─── nowait_submit                      no wait for data
 *                                               nowait_reap                        waits, if asked
 *
 * RESULTS. A function that can fail returns 0, a count or a descriptor, and a negative error number
 * if it failed (-EAGAIN, -EIO: the numbers of <errno.h>). It neither reads nor changes `errno`.
 * nowait_error_text() says in one line what failed and what to change. A function that makes
 * something stores it at the address given last, and stores NULL there if it fails.
 *
 * BUFFERS stay the caller's, which lends them to the library: from nowait_submit() until
 * nowait_reap() has returned the completion of the request, or nowait_queue_destroy() has returned.
 * Meanwhile the program must not touch the buffer of a read, not change that of a write, and free
 * neither. nowait_submit() copies requests and arrays of struct iovec: the program may reuse them
 * when it returns.
 *
 * THREADS. Several threads may use an engine or a file at once. A queue or a loan is for one thread
 * at a time, and may move to another; a call on a queue that another thread is using returns -EBUSY
 * and does nothing. Do not destroy a queue that another thread is using. Signal handlers must not
 * call these functions.
 *
 * LIFETIME. Every handle keeps alive what it needs: a program may destroy an engine before its
 * files and queues, and close a file before its requests have ended. The engine's threads end with
 * the last of these handles. A program must not use a handle after it has destroyed or closed it;
 * destroying NULL does nothing.
 *
 * FORK. A child process must only destroy the engines, files and queues of its parent, which does
 * not affect the parent: create an engine in the child. In the child nowait_reap() on a queue of
 * the parent returns -EINVAL.
 *
 * POINTERS must be valid, and NULL only where this file allows it: the library does not check them.
 * An internal error (a bug: please report it) ends the call with -EIO, with a message on standard
 * error; it never unwinds into the caller.
 *
 * COMPATIBILITY. Structures grow only into their reserved fields, which must be zero, and the
 * constants keep their values. Functions are added under new symbol versions.
 */
#ifndef NOWAIT_H
#define NOWAIT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ------------------------------------------------------------------------------ */

#define NOWAIT_VERSION_MAJOR 0
#define NOWAIT_VERSION_MINOR 2
#define NOWAIT_VERSION_PATCH 0

/** Makes one number of a version, for comparisons. */
#define NOWAIT_MAKE_VERSION(major, minor, patch) \
	((uint32_t)(major) << 16 | (uint32_t)(minor) << 8 | (uint32_t)(patch))

/** The version of this header as one number. */
#define NOWAIT_VERSION \
	NOWAIT_MAKE_VERSION(NOWAIT_VERSION_MAJOR, NOWAIT_VERSION_MINOR, NOWAIT_VERSION_PATCH)

/** Returns the version of the library that is loaded, as NOWAIT_MAKE_VERSION() makes it. */
uint32_t nowait_version(void);

/** Returns the same version as static text, "0.2.0". */
const char *nowait_version_text(void);

/* ---- Errors ------------------------------------------------------------------------------- */

/**
 * Returns the last failure on this thread, in one line: the action, the error, and what to change,
 * as in
 *
 *   read of 100 bytes at 7 of data: Invalid argument (os error 22) (EINVAL): direct I/O on this
 *   file needs the offset to be a multiple of 512 bytes, not 0x7
 *
 * nowait_reap() sets the text for the last failed completion that it returns, if there is one; no
 * other call that succeeds changes it. Never NULL; empty before the first failure. The library
 * owns the text, which is valid until this thread calls the library again.
 */
const char *nowait_error_text(void);

/**
 * Returns the text of an error number, negative or positive: "Input/output error (os error 5)
 * (EIO)". The library owns the text, which is valid until this thread calls this function again.
 */
const char *nowait_strerror(int error);

/* ---- Engines ------------------------------------------------------------------------------ */

/** An engine: backend, threads, page cache, open files. Most programs need one. */
typedef struct nowait_engine nowait_engine;

/** The backend, which carries requests that need not block a thread. */
enum {
	/** The best backend that works here. */
	NOWAIT_BACKEND_AUTO = 0,
	/** io_uring. */
	NOWAIT_BACKEND_URING = 1,
	/** The kernel's native AIO for direct files, threads for the rest. */
	NOWAIT_BACKEND_KAIO = 2,
	/** Threads only. */
	NOWAIT_BACKEND_THREADS = 3
};

/** The thread that makes the first attempt at a request. */
enum {
	/** The thread in nowait_submit() while attempts are short, else the engine's threads. */
	NOWAIT_SUBMIT_AUTO = 0,
	/** The engine's threads: nowait_submit() only passes the batch to them. (1 was removed.) */
	NOWAIT_SUBMIT_OFFLOAD = 2
};

/** In nowait_options.flags: count the requests of queues, for nowait_queue_report(). */
#define NOWAIT_COUNT 1u
/** In nowait_options.flags: options that are 0 take their values from NOWAIT_BACKEND,
 * NOWAIT_SUBMIT, NOWAIT_WORKERS and NOWAIT_CACHE_SIZE, if these are set and valid; limits of
 * requests in flight come from NOWAIT_MAX_REQUESTS and NOWAIT_MAX_PINNED, and for each queue from
 * the variables with …_CONTEXT_…. */
#define NOWAIT_ENVIRONMENT 2u

/** Options of an engine. Initialize them with NOWAIT_OPTIONS_INIT; 0 is the default of every
 * option. */
typedef struct nowait_options {
	/** sizeof(nowait_options), as the program was compiled. */
	size_t size;
	/** NOWAIT_BACKEND_*. If a backend other than AUTO does not work, the start fails with the
	 * reason. */
	uint32_t backend;
	/** NOWAIT_SUBMIT_*. */
	uint32_t submit;
	/** Most threads that make blocking calls, 1 to 1024; 32 by default. They start when needed. */
	uint32_t workers;
	/** NOWAIT_COUNT, NOWAIT_ENVIRONMENT. */
	uint32_t flags;
	/** Most bytes of the page cache for files in NOWAIT_CACHE_USER; 256 MiB by default. The size is
	 * rounded up to 2 MiB. The engine allocates the memory as it uses it. */
	uint64_t cache_bytes;
	/** Most requests in flight at a time in all queues; 524,288 by default. Requests that end
	 * in nowait_submit() do not count. A request above the limit ends with -EAGAIN. */
	uint64_t max_requests;
	/** Most bytes that the requests in flight read or write; no limit by default. A request
	 * larger than the limit starts only when no other request uses bytes. */
	uint64_t max_bytes;
} nowait_options;

/** The defaults. */
#define NOWAIT_OPTIONS_INIT { sizeof(nowait_options), 0, 0, 0, 0, 0, 0, 0 }

/**
 * Starts an engine; `options` may be NULL for the defaults, for which any backend will do.
 *
 * Blocks while the engine starts (milliseconds). Errors: -EINVAL: an option is out of range.
 * -EMFILE, -EAGAIN, -ENOMEM: no descriptors, threads or memory left. If the options name a backend
 * that does not work: the error of the system, such as -ENOSYS or -EPERM.
 */
int nowait_engine_create(const nowait_options *options, nowait_engine **engine);

/**
 * Destroys the handle of an engine. An engine with files or queues works until the last of them is
 * closed or destroyed.
 *
 * The call that releases the last handle waits for the engine's threads.
 */
void nowait_engine_destroy(nowait_engine *engine);

/** Returns the backend in use: NOWAIT_BACKEND_*, never AUTO. */
int nowait_engine_backend(const nowait_engine *engine);

/** Returns in one line the reason for this backend; the text lives as long as the engine. */
const char *nowait_engine_reason(const nowait_engine *engine);

/**
 * Writes a report of the engine to `text`, at most `size` bytes with the terminating 0: one line of
 * JSON with the backend and the counters of the page cache.
 *
 * Returns the length of the whole report without the 0, even if that is `size` or more and the text
 * was cut off. `text` may be NULL if `size` is 0.
 */
int64_t nowait_engine_report(const nowait_engine *engine, char *text, size_t size);

/* ---- Files -------------------------------------------------------------------------------- */

/** An open file. It has no position: every request names its offset. */
typedef struct nowait_file nowait_file;

/** The page cache between the program and the device. */
enum {
	/**
	 * The page cache of nowait, in the process: cached data needs no system call and no second
	 * copy in memory. All handles of one engine see the same data. An open sees earlier writes
	 * of other programs; other programs see data after a sync, about a second after the write,
	 * or after the last close. Regular files only.
	 */
	NOWAIT_CACHE_USER = 0,
	/** The kernel's page cache: coherent with every other reader and writer that uses it. */
	NOWAIT_CACHE_HOST = 1,
	/** No page cache (O_DIRECT): offsets, lengths and addresses must be aligned,
	 * nowait_file_alignment(). */
	NOWAIT_CACHE_DIRECT = 2
};

/**
 * Opens the file at `path` for `engine` in a mode NOWAIT_CACHE_*.
 *
 * `flags` are flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT (and `permissions`, to
 * which the umask applies), O_EXCL, O_TRUNC, O_DSYNC (every write is durable when it ends), O_SYNC,
 * O_NOFOLLOW, O_NOATIME, O_NOCTTY. O_CLOEXEC is always on. O_CREAT and O_TRUNC need write access.
 *
 * Blocks as open(2) does. Errors: those of open(2). -EINVAL: another flag (use NOWAIT_CACHE_DIRECT
 * in place of O_DIRECT; there is no O_APPEND, since requests name offsets); a file that cannot be
 * cached; a file system without direct I/O. -ENOMEM: no memory for the page cache.
 */
int nowait_file_open(nowait_engine *engine, const char *path, int flags, unsigned permissions,
		     int cache, nowait_file **file);

/**
 * Closes a file. The file stays open for its requests in flight.
 *
 * For a file in NOWAIT_CACHE_USER, the close of its last handle, or of its last handle that may
 * write, blocks until the written data are in the file. Returns 0, or the error of the write if
 * data could not be written and are lost (-ENOSPC, -EIO: see write(2)). The handle is gone in any
 * case. Returns 0 while requests are in flight on the file, and for NULL.
 */
int nowait_file_close(nowait_file *file);

/** Returns the descriptor, for fstat(2) and similar calls; the file owns it. Do not read, write or
 * close it. */
int nowait_file_fd(const nowait_file *file);

/**
 * Stores two numbers for direct requests: the address of a buffer must be a multiple of `memory`,
 * offset and length of `offset`. Both are 1 in other modes. Either pointer may be NULL.
 */
void nowait_file_alignment(const nowait_file *file, size_t *memory, size_t *offset);

/**
 * Stores the size in bytes; 0 for devices.
 *
 * Errors: those of fstat(2).
 */
int nowait_file_size(const nowait_file *file, uint64_t *size);

/**
 * Cuts the file off at `size` bytes, or extends it with zeroes. Blocks.
 *
 * Errors: those of ftruncate(2); -EINVAL: not open for writing.
 */
int nowait_file_truncate(nowait_file *file, uint64_t size);

/**
 * Makes data and metadata durable, as fsync(2) does. Blocks. The library does not order this sync
 * with writes in flight in a queue: use NOWAIT_OP_SYNC there.
 *
 * Errors: those of fsync(2). -EIO: data written before could not be written to the device.
 */
int nowait_file_sync(nowait_file *file);

/**
 * Makes the data durable, and the metadata needed to read them, as fdatasync(2) does. Blocks.
 *
 * Errors: those of nowait_file_sync().
 */
int nowait_file_datasync(nowait_file *file);

/**
 * Makes `length` bytes at `offset` durable, and the metadata needed to read them; with length 0
 * everything from `offset` on. Blocks. Syncs the whole file unless it is in NOWAIT_CACHE_USER,
 * because the kernel cannot make a range durable.
 *
 * Errors: those of nowait_file_sync().
 */
int nowait_file_sync_range(nowait_file *file, uint64_t offset, uint64_t length);

/** The expected use of a part of a file, as for posix_fadvise(2). */
enum {
	/** Nothing special: read ahead when the program reads in order. */
	NOWAIT_ADVICE_NORMAL = 0,
	/** In random order: read nothing ahead. */
	NOWAIT_ADVICE_RANDOM = 1,
	/** In order: read far ahead. */
	NOWAIT_ADVICE_SEQUENTIAL = 2,
	/** Soon: begin to read it. */
	NOWAIT_ADVICE_WILLNEED = 3,
	/** Not soon: the cache may drop the data that is not dirty. */
	NOWAIT_ADVICE_DONTNEED = 4
};

/**
 * Announces how the program will use `length` bytes at `offset`, NOWAIT_ADVICE_*; with length 0
 * everything from `offset` on. The advice changes no result. If the file is in NOWAIT_CACHE_USER,
 * the call does not wait for the disk.
 *
 * NORMAL, RANDOM and SEQUENTIAL apply to this whole open file, whatever the part. Errors: -EINVAL:
 * no such advice; those of posix_fadvise(2).
 */
int nowait_file_advise(nowait_file *file, uint64_t offset, uint64_t length, int advice);

/**
 * Reads up to `length` bytes at `offset`. Blocks, and continues after a signal.
 *
 * Returns the number of bytes read: fewer than `length` at the end of the file, before bytes that
 * cannot be read, or if `length` is above 2 GiB less 4 KiB. Errors: -EBADF: not open for reading.
 * -EINVAL: not aligned as direct I/O needs it. All others: those of pread(2).
 */
int64_t nowait_read(nowait_file *file, void *buffer, size_t length, uint64_t offset);

/**
 * Writes up to `length` bytes at `offset`. Blocks, and continues after a signal.
 *
 * Returns the number of bytes written: fewer than `length` if the rest cannot be written (the
 * device is full, for example), or if `length` is above 2 GiB less 4 KiB. Errors: -EBADF: not open
 * for writing. -EINVAL: not aligned as direct I/O needs it. All others: those of pwrite(2).
 */
int64_t nowait_write(nowait_file *file, const void *buffer, size_t length, uint64_t offset);

/**
 * Reads into `count` buffers, one after another, as nowait_read() reads into one.
 *
 * Errors: those of nowait_read(); -EINVAL: more than 1024 buffers.
 */
int64_t nowait_readv(nowait_file *file, const struct iovec *iov, size_t count, uint64_t offset);

/**
 * Writes `count` buffers, one after another, as nowait_write() writes one.
 *
 * Errors: those of nowait_write(); -EINVAL: more than 1024 buffers.
 */
int64_t nowait_writev(nowait_file *file, const struct iovec *iov, size_t count, uint64_t offset);

/**
 * Fills the buffer from `offset`; returns 0. Blocks.
 *
 * Errors: those of nowait_read(); -ENODATA: the file ends before.
 */
int nowait_read_exact(nowait_file *file, void *buffer, size_t length, uint64_t offset);

/**
 * Writes all bytes at `offset`; returns 0. Blocks.
 *
 * Errors: those of nowait_write(); a part may have been written.
 */
int nowait_write_all(nowait_file *file, const void *buffer, size_t length, uint64_t offset);

/* ---- Loans: cached bytes without a copy --------------------------------------------------- */

/** Bytes of a file that stay in place and unchanged in the page cache. */
typedef struct nowait_loan nowait_loan;

/**
 * Lends the bytes at `offset`, up to `length` and the end of the file, if the file is in mode
 * NOWAIT_CACHE_USER and all these bytes are in the page cache. Starts no read.
 *
 * Writes to these pages wait until the program returns the loan: do not wait for such a write
 * before. Lend little, and not for long: the cache cannot reuse the memory. Errors: -EAGAIN:
 * not cached, or being changed; read them. -EBADF: not open for reading. -EINVAL: no such offset.
 */
int nowait_lend(nowait_file *file, uint64_t offset, size_t length, nowait_loan **loan);

/** A part of a file, in bytes. */
typedef struct nowait_range {
	uint64_t offset;
	uint64_t length;
} nowait_range;

/**
 * Lends `count` ranges as nowait_lend() lends one: stores a loan for each at `loans`, or NULL where
 * nowait_lend() would return -EAGAIN. Faster than one nowait_lend() for each range, because the
 * processor fetches the next ranges from memory meanwhile. Starts no read.
 *
 * Returns the number of ranges lent. Errors, after which all loans are NULL: -EBADF: not open for
 * reading. -EINVAL: an offset that no file can have.
 */
int nowait_lend_many(nowait_file *file, const nowait_range *ranges, size_t count,
		     nowait_loan **loans);

/** Returns the number of bytes lent: fewer than asked for only if the file ends. */
size_t nowait_loan_length(const nowait_loan *loan);

/**
 * Stores the places of the bytes: up to `max` pieces, in order, of 4 to 256 KiB each; the first and
 * the last may be shorter. The program may only read them. `iov` may be NULL if `max` is 0.
 *
 * Returns the number of pieces, which may be more than `max`.
 */
size_t nowait_loan_pieces(const nowait_loan *loan, struct iovec *iov, size_t max);

/** Returns a loan: the program must not read the pieces any more. */
void nowait_loan_return(nowait_loan *loan);

/* ---- Queues: many requests at a time ------------------------------------------------------ */

/** A queue: requests in flight, and their completions. */
typedef struct nowait_queue nowait_queue;

/** The operation of a request. */
enum {
	/** Read `length` bytes to `buffer`. */
	NOWAIT_OP_READ = 1,
	/** Write `length` bytes from `buffer`. */
	NOWAIT_OP_WRITE = 2,
	/** Read to `length` buffers; `buffer` is the address of an array of struct iovec. */
	NOWAIT_OP_READV = 3,
	/** Write from `length` buffers; `buffer` is the address of an array of struct iovec. */
	NOWAIT_OP_WRITEV = 4,
	/** Make data and metadata durable; covers the writes submitted before. */
	NOWAIT_OP_SYNC = 5,
	/** Make the data durable; covers the writes submitted before. */
	NOWAIT_OP_DATASYNC = 6,
	/** Wait until `fd` is ready for one of `events`, the events of poll(2), once. */
	NOWAIT_OP_POLL = 7,
	/** Read up to `length` bytes to `buffer` from the pipe, socket or terminal `fd`, waiting for
	 * the first one, as read(2) does; the descriptor need not be non-blocking. */
	NOWAIT_OP_READ_STREAM = 8,
	/** Write up to `length` bytes from `buffer` to the pipe, socket or terminal `fd`, waiting for
	 * room for the first one, as write(2) does. */
	NOWAIT_OP_WRITE_STREAM = 9,
	/** Make `length` bytes at `offset` durable, as nowait_file_sync_range() does; covers the
	 * writes to these bytes submitted before. */
	NOWAIT_OP_SYNC_RANGE = 10,
	/** NOWAIT_OP_READ_STREAM to `length` buffers; `buffer` is the address of an array of struct
	 * iovec. */
	NOWAIT_OP_READV_STREAM = 11,
	/** NOWAIT_OP_WRITE_STREAM from `length` buffers; `buffer` is the address of an array of
	 * struct iovec. */
	NOWAIT_OP_WRITEV_STREAM = 12
};

/**
 * In nowait_request.flags: the next request of the same call begins when this one has succeeded,
 * for example a sync after its write. If this request fails, is short, or is cancelled, the next
 * one and the requests linked to it end with -ECANCELED. If the queue has too little room for a
 * chain, none of its requests begins. A transfer of a stream cannot begin after another one.
 */
#define NOWAIT_LINK 1u

/** A request. Fields that its operation does not use must be 0. The functions nowait_prep_*() set
 * the fields. */
typedef struct nowait_request {
	/** NOWAIT_OP_*. */
	uint16_t op;
	/** NOWAIT_LINK. */
	uint16_t flags;
	/** NOWAIT_OP_POLL and streams: a descriptor, open until nowait_submit() has returned. */
	int32_t fd;
	/** The file; NULL for operations on a descriptor. */
	nowait_file *file;
	/** The memory, or the array of struct iovec. The library only reads the memory of a write. */
	void *buffer;
	/** Bytes, or buffers. */
	uint64_t length;
	/** Offset in the file, in bytes. */
	uint64_t offset;
	/** NOWAIT_OP_POLL: POLLIN and its like. */
	uint32_t events;
	uint32_t reserved_events;
	/** A value for the program, which the completion returns. */
	uint64_t user_data;
	/** 0, or nanoseconds after nowait_submit(): the library then cancels the request, which ends
	 * with -ETIMEDOUT if nowait_cancel() could stop it. */
	uint64_t timeout_ns;
	uint64_t reserved[2];
} nowait_request;

/** The end of a request. */
typedef struct nowait_completion {
	/** The user_data of the request. */
	uint64_t user_data;
	/** The bytes transferred, perhaps fewer than `length` as in nowait_read() and nowait_write();
	 * for a poll the events that are ready; for a sync 0; or a negative error number. */
	int64_t result;
	uint64_t reserved[2];
} nowait_completion;

/** As a timeout: wait without a limit. */
#define NOWAIT_FOREVER INT64_C(-1)

/** Most requests of one queue. */
#define NOWAIT_DEPTH_MAX 65536

/**
 * Makes a queue for up to `depth` requests. A request counts from nowait_submit() until
 * nowait_reap() has returned its completion.
 *
 * Errors: -EINVAL: `depth` is 0 or above NOWAIT_DEPTH_MAX, or the engine belongs to the parent
 * process. -ENOMEM.
 */
int nowait_queue_create(nowait_engine *engine, uint32_t depth, nowait_queue **queue);

/**
 * Destroys a queue. Waits for the requests in flight, because they use buffers of the program;
 * cancels polls, and reads and writes of streams that are not ready. Completions that were not
 * reaped are lost.
 */
void nowait_queue_destroy(nowait_queue *queue);

/**
 * Starts up to `count` requests, in order, and submits them together. Does not wait for data.
 *
 * Returns the number of accepted requests. Each accepted request ends in exactly one completion,
 * whatever its result. Its buffer is lent until the program has reaped this completion. The first
 * request that cannot be accepted ends the call: neither it, nor the rest of its chain, nor the
 * requests behind it have started; submit them again.
 *
 * Requests end in any order. Those that overlap on one buffered file, at least one of them a write,
 * take effect in the order in which they were submitted. Errors, if the first request cannot be
 * accepted: -EAGAIN: the queue is full; reap. -EBADF: the file is not open for this. -EINVAL:
 * malformed, not aligned as direct I/O needs it, or more than 1024 buffers; a link without a next
 * request, or a chain longer than the queue is deep. -EBUSY: another thread uses the queue.
 */
int nowait_submit(nowait_queue *queue, const nowait_request *requests, size_t count);

/**
 * Takes up to `max` completions, when at least `min` requests have ended or `timeout_ns`
 * nanoseconds have passed (0: without waiting; NOWAIT_FOREVER: no limit). Does not wait for more
 * requests than are in flight, nor for more than `max`. Continues to wait after a signal.
 *
 * Returns the number of completions stored at `completions`. Fewer than `min` means that the time
 * has passed or that nothing else is in flight. Errors: -EINVAL: the queue belongs to the parent
 * process. -EBUSY: another thread uses the queue.
 */
int nowait_reap(nowait_queue *queue, nowait_completion *completions, size_t max, size_t min,
		int64_t timeout_ns);

/**
 * Asks for an early end of the request with this `user_data`, or of one of them if several have it.
 * Does not wait for the end.
 *
 * Returns 0 if it has asked: the request then ends once, as every other. If the request had not
 * begun, or waits for another request, for readiness or for its turn, it ends with -ECANCELED.
 * Otherwise it may end with its own result, for example if the device works on it. Errors: -ENOENT:
 * no such request, or it has ended. -EBUSY: another thread uses the queue.
 */
int nowait_cancel(nowait_queue *queue, uint64_t user_data);

/** Returns the number of requests in the queue: in flight, or ended and not reaped. -EBUSY: another
 * thread uses the queue. */
int nowait_queue_length(nowait_queue *queue);

/**
 * Returns a descriptor that poll(2), epoll(7) and io_uring report readable when nowait_reap() has a
 * completion: for programs with an event loop of their own. The first call makes the descriptor;
 * the queue owns and closes it.
 *
 * nowait_reap() resets the descriptor and, if completions are left, makes it readable again: the
 * program misses nothing, level- or edge-triggered. Only wait for the descriptor; neither read nor
 * write it. After the first call, the engine's threads reap the queue's requests, which costs a
 * thread switch for each request on data that is not cached. Errors: -EMFILE, -ENFILE, -EAGAIN: no
 * descriptor left. -EINVAL: this is a forked child. -EBUSY: another thread uses the queue.
 */
int nowait_queue_fd(nowait_queue *queue);

/**
 * Writes a report of the queue to `text` as nowait_engine_report() does, with the queue's counters
 * if the engine was started with NOWAIT_COUNT. -EBUSY: another thread uses the queue.
 */
int64_t nowait_queue_report(nowait_queue *queue, char *text, size_t size);

/* ---- Filling in requests ------------------------------------------------------------------ */

/** Sets the operation, the file and user_data, and all other fields to 0. */
static inline void nowait_prep(nowait_request *request, uint16_t op, nowait_file *file,
			       uint64_t user_data)
{
	memset(request, 0, sizeof(*request));
	request->op = op;
	request->file = file;
	request->user_data = user_data;
}

/** A read of `length` bytes at `offset` to `buffer`. The buffer is lent until the completion. */
static inline void nowait_prep_read(nowait_request *request, nowait_file *file, void *buffer,
				    size_t length, uint64_t offset, uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_READ, file, user_data);
	request->buffer = buffer;
	request->length = length;
	request->offset = offset;
}

/** A write of `length` bytes from `buffer` at `offset`. The buffer is lent until the completion. */
static inline void nowait_prep_write(nowait_request *request, nowait_file *file,
				     const void *buffer, size_t length, uint64_t offset,
				     uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_WRITE, file, user_data);
	request->buffer = (void *)(uintptr_t)buffer;
	request->length = length;
	request->offset = offset;
}

/** A read at `offset` to `count` buffers, one after another. The buffers are lent until the
 * completion, the array `iov` until nowait_submit() has returned. */
static inline void nowait_prep_readv(nowait_request *request, nowait_file *file,
				     const struct iovec *iov, size_t count, uint64_t offset,
				     uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_READV, file, user_data);
	request->buffer = (void *)(uintptr_t)iov;
	request->length = count;
	request->offset = offset;
}

/** A write of `count` buffers in turn, at `offset`; all are lent as for nowait_prep_readv(). */
static inline void nowait_prep_writev(nowait_request *request, nowait_file *file,
				      const struct iovec *iov, size_t count, uint64_t offset,
				      uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_WRITEV, file, user_data);
	request->buffer = (void *)(uintptr_t)iov;
	request->length = count;
	request->offset = offset;
}

/** A sync of data and metadata that covers the writes submitted before. */
static inline void nowait_prep_sync(nowait_request *request, nowait_file *file, uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_SYNC, file, user_data);
}

/** A sync of the data that covers the writes submitted before. */
static inline void nowait_prep_datasync(nowait_request *request, nowait_file *file,
					uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_DATASYNC, file, user_data);
}

/** A sync of `length` bytes at `offset`, or with `length` 0 of everything from `offset` on.
 * Covers the writes to these bytes submitted before. */
static inline void nowait_prep_sync_range(nowait_request *request, nowait_file *file,
					  uint64_t offset, uint64_t length, uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_SYNC_RANGE, file, user_data);
	request->offset = offset;
	request->length = length;
}

/** A wait until `fd` is ready for one of `events` (POLLIN, POLLOUT …), once. */
static inline void nowait_prep_poll(nowait_request *request, int fd, uint32_t events,
				    uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_POLL, NULL, user_data);
	request->fd = fd;
	request->events = events;
}

/** A read of up to `length` bytes from the pipe, socket or terminal `fd`. */
static inline void nowait_prep_read_stream(nowait_request *request, int fd, void *buffer,
					   size_t length, uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_READ_STREAM, NULL, user_data);
	request->fd = fd;
	request->buffer = buffer;
	request->length = length;
}

/** A write of up to `length` bytes to the pipe, socket or terminal `fd`. */
static inline void nowait_prep_write_stream(nowait_request *request, int fd, const void *buffer,
					    size_t length, uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_WRITE_STREAM, NULL, user_data);
	request->fd = fd;
	request->buffer = (void *)(uintptr_t)buffer;
	request->length = length;
}

/** A read from the pipe, socket or terminal `fd` to `count` buffers, one after another. The buffers
 * and `iov` are lent as for nowait_prep_readv(). */
static inline void nowait_prep_readv_stream(nowait_request *request, int fd,
					    const struct iovec *iov, size_t count,
					    uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_READV_STREAM, NULL, user_data);
	request->fd = fd;
	request->buffer = (void *)(uintptr_t)iov;
	request->length = count;
}

/** A write of `count` buffers in turn, to a stream; all are lent as for nowait_prep_readv(). */
static inline void nowait_prep_writev_stream(nowait_request *request, int fd,
					     const struct iovec *iov, size_t count,
					     uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_WRITEV_STREAM, NULL, user_data);
	request->fd = fd;
	request->buffer = (void *)(uintptr_t)iov;
	request->length = count;
}

#ifdef __cplusplus
}
#endif

#endif /* NOWAIT_H */
