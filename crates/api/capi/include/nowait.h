/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/**
 * nowait: asynchronous file I/O for Linux whose submit never waits.
 *
 *   nowait_engine ──── nowait_file ──── nowait_read, nowait_write, nowait_sync …   these block
 *     backend, threads     │
 *                          └── nowait_queue ─── nowait_submit                      never waits
 *                                               nowait_reap                        waits, if asked
 *
 * RESULTS. A function that can fail returns 0 or a count, and a negative error number if it
 * failed (-EAGAIN, -EIO: those of <errno.h>). `errno` is neither read nor changed.
 * nowait_error_text() says in one line what failed and what to change. A function that makes
 * something stores it at the address given last, and stores NULL there if it fails.
 *
 * BUFFERS stay the caller's, and are lent: from nowait_submit() until the completion of the
 * request has been given out by nowait_reap(), or nowait_queue_destroy() has returned. Meanwhile
 * the buffer of a read must not be touched, that of a write not be changed, and neither be freed.
 * Requests themselves, and arrays of struct iovec, are copied: they are free again when
 * nowait_submit() returns.
 *
 * THREADS. Engines and files may be used by several threads at once. A queue or a loan is for one
 * thread at a time, and may move to another; a call on a queue that is in use elsewhere returns
 * -EBUSY and does nothing. Nothing here may be called by a signal handler.
 *
 * LIFETIME. Every handle keeps what it needs: an engine may be destroyed before its files and
 * queues, a file closed before its requests have ended. The engine's threads end with the last of
 * them. A handle must not be used after it was destroyed or closed; destroying NULL does nothing.
 *
 * FORK. In a child process, engines, files and queues of the parent are of no use but to be
 * destroyed, which leaves the parent's alone: create an engine of its own there. Calls on the
 * parent's queues return -EINVAL.
 *
 * POINTERS must be valid, and NULL only where this file says so: the library does not look.
 * An internal failure (a bug: please report it) ends as -EIO, with a message on standard error;
 * it never unwinds into the caller.
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

/** The version of this header. */
#define NOWAIT_VERSION_MAJOR 0
#define NOWAIT_VERSION_MINOR 2
#define NOWAIT_VERSION_PATCH 0

/** Makes one number of a version, to be compared. */
#define NOWAIT_MAKE_VERSION(major, minor, patch) \
	((uint32_t)(major) << 16 | (uint32_t)(minor) << 8 | (uint32_t)(patch))

/** The version of this header as one number. */
#define NOWAIT_VERSION \
	NOWAIT_MAKE_VERSION(NOWAIT_VERSION_MAJOR, NOWAIT_VERSION_MINOR, NOWAIT_VERSION_PATCH)

/** Returns the version of the library that is loaded, as NOWAIT_MAKE_VERSION() makes it. */
uint32_t nowait_version(void);

/** Returns the same as text, "0.2.0"; the text is static. */
const char *nowait_version_text(void);

/* ---- Errors ------------------------------------------------------------------------------- */

/**
 * Returns what failed last on this thread, in one line: what was done, the error, and what to
 * change, as in
 *
 *   read of 100 bytes at 7 of data: Invalid argument (os error 22) (EINVAL): direct I/O on this
 *   file needs the offset to be a multiple of 512 bytes, not 0x7
 *
 * After nowait_reap() it tells of the last failed completion that was given out. A call that
 * succeeds leaves it alone. Never NULL; empty before the first failure. The text is the library's
 * and valid until the next call of this library on this thread.
 */
const char *nowait_error_text(void);

/**
 * Returns the text of an error number, negative or positive: "Input/output error (os error 5)
 * (EIO)". The text is the library's and valid until the next call of this function on this thread.
 */
const char *nowait_strerror(int error);

/* ---- Engines ------------------------------------------------------------------------------ */

/** Backend, threads, page cache, open files. Most programs need one. */
typedef struct nowait_engine nowait_engine;

/** What carries requests that need not block a thread. */
enum {
	/** The best that works here. */
	NOWAIT_BACKEND_AUTO = 0,
	/** io_uring. */
	NOWAIT_BACKEND_URING = 1,
	/** The kernel's native AIO for direct files, threads for the rest. */
	NOWAIT_BACKEND_KAIO = 2,
	/** Threads only. */
	NOWAIT_BACKEND_THREADS = 3
};

/** Where the first attempt at a request is made. */
enum {
	/** In nowait_submit() while that is short, else on the engine's threads. */
	NOWAIT_SUBMIT_AUTO = 0,
	/** On the engine's threads: nowait_submit() only hands the batch over. (1 was removed.) */
	NOWAIT_SUBMIT_OFFLOAD = 2
};

/** In nowait_options.flags: count what queues do, for nowait_queue_report(). */
#define NOWAIT_COUNT 1u
/** In nowait_options.flags: what is 0 in the options is taken from NOWAIT_BACKEND, NOWAIT_SUBMIT,
 * NOWAIT_WORKERS and NOWAIT_CACHE_SIZE, if they are set and valid; limits on what may be in flight
 * from NOWAIT_MAX_REQUESTS, NOWAIT_MAX_PINNED and the same of each queue (…_CONTEXT_…). */
#define NOWAIT_ENVIRONMENT 2u

/** How an engine is started. Begin with NOWAIT_OPTIONS_INIT; 0 is the default everywhere. */
typedef struct nowait_options {
	/** sizeof(nowait_options), as the program was compiled. */
	size_t size;
	/** NOWAIT_BACKEND_*. One that is named must work, or the start fails with the reason. */
	uint32_t backend;
	/** NOWAIT_SUBMIT_*. */
	uint32_t submit;
	/** Most threads that make blocking calls, 1 to 1024; 32 by default. Started when needed. */
	uint32_t workers;
	/** NOWAIT_COUNT, NOWAIT_ENVIRONMENT. */
	uint32_t flags;
	/** Most bytes of the page cache for files in NOWAIT_CACHE_USER; 256 MiB by default. Rounded
	 * up to 2 MiB, and taken from the system as it is used, or a little
	 * ahead of that. */
	uint64_t cache_bytes;
	/** Most requests in flight at a time in all queues, those over in nowait_submit() not
	 * counted; 524,288 by default. More are not started and end with -EAGAIN. */
	uint64_t max_requests;
	/** The same for the bytes that they read or write; no limit by default. The largest request
	 * passes alone. */
	uint64_t max_bytes;
} nowait_options;

/** The defaults. */
#define NOWAIT_OPTIONS_INIT { sizeof(nowait_options), 0, 0, 0, 0, 0, 0, 0 }

/**
 * Starts an engine; `options` may be NULL for the defaults, which work on every Linux.
 *
 * Blocks until its threads run (milliseconds).
 * Errors: -EINVAL: an option is out of range. -EMFILE, -EAGAIN, -ENOMEM: no descriptors, threads or
 * memory. For a backend that was named: whatever refuses it, as -ENOSYS or -EPERM.
 */
int nowait_engine_create(const nowait_options *options, nowait_engine **engine);

/**
 * Gives up an engine. What still has files or queues goes on until the last of them has gone.
 *
 * The last to go waits for the engine's threads.
 */
void nowait_engine_destroy(nowait_engine *engine);

/** Returns the backend in use: NOWAIT_BACKEND_*, never AUTO. */
int nowait_engine_backend(const nowait_engine *engine);

/** Returns in one line why this backend is in use; the text lives as long as the engine. */
const char *nowait_engine_reason(const nowait_engine *engine);

/**
 * Writes a report of the engine to `text`, at most `size` bytes with the 0 at its end: one line
 * of JSON with the backend and what the page cache did.
 *
 * Returns its length without the 0, also if that is `size` or more and the text was cut off.
 * `text` may be NULL if `size` is 0.
 */
int64_t nowait_engine_report(const nowait_engine *engine, char *text, size_t size);

/* ---- Files -------------------------------------------------------------------------------- */

/** An open file. It has no position: every request names its offset. */
typedef struct nowait_file nowait_file;

/** Which page cache stands between the program and the device. */
enum {
	/**
	 * That of nowait, in the process: no system call for what is cached, and nothing twice in
	 * memory. Coherent within the engine; towards other programs an open sees what they have
	 * written, and they see what was synced, or written about a second ago, or before the last
	 * close. Regular files only.
	 */
	NOWAIT_CACHE_USER = 0,
	/** The kernel's: coherent with every other reader and writer of the file. */
	NOWAIT_CACHE_HOST = 1,
	/** None (O_DIRECT): offsets, lengths and addresses must be aligned, nowait_file_alignment(). */
	NOWAIT_CACHE_DIRECT = 2
};

/**
 * Opens the file at `path` for `engine` in a mode NOWAIT_CACHE_*.
 *
 * `flags` are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT (and `permissions`, to
 * which the umask applies), O_EXCL, O_TRUNC, O_DSYNC (every write is durable when it ends), O_SYNC,
 * O_NOFOLLOW, O_NOATIME, O_NOCTTY. O_CLOEXEC is always on. O_CREAT and O_TRUNC need writing.
 *
 * Blocks as open(2) does.
 * Errors: those of open(2). -EINVAL: another flag (for O_DIRECT there is NOWAIT_CACHE_DIRECT; there
 * is no O_APPEND, since requests name offsets); a file that cannot be cached; a file system without
 * direct I/O. -ENOMEM: no memory for the page cache.
 */
int nowait_file_open(nowait_engine *engine, const char *path, int flags, unsigned permissions,
		     int cache, nowait_file **file);

/**
 * Closes a file. It stays open for its requests that are in flight.
 *
 * The last close of a file in NOWAIT_CACHE_USER, and of its handles that may write, blocks until
 * what was written is in the file. Returns 0, or the error of what could not be written, which is
 * lost (-ENOSPC, -EIO: see write(2)); the handle is gone. 0 while requests are in flight, for NULL.
 */
int nowait_file_close(nowait_file *file);

/** Returns the descriptor, for fstat(2) and its like; it stays the file's. Do not read, write or
 * close it. */
int nowait_file_fd(const nowait_file *file);

/**
 * Stores what must divide addresses, and offsets and lengths, of direct requests on the file,
 * in bytes; 1 for files in other modes. Either pointer may be NULL.
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
 * Makes data and metadata durable, as fsync(2). Blocks. Not ordered with writes that are in flight
 * in a queue: use NOWAIT_OP_SYNC there.
 *
 * Errors: those of fsync(2). -EIO: something written before could not be written to the device.
 */
int nowait_file_sync(nowait_file *file);

/**
 * Makes the data durable, and what is needed to read them, as fdatasync(2). Blocks.
 *
 * Errors: those of nowait_file_sync().
 */
int nowait_file_datasync(nowait_file *file);

/**
 * Makes `length` bytes at `offset` durable, and what is needed to read them; with length 0 all
 * from `offset` on. Blocks. For files not in NOWAIT_CACHE_USER the whole file: the kernel has no
 * such call.
 *
 * Errors: those of nowait_file_sync().
 */
int nowait_file_sync_range(nowait_file *file, uint64_t offset, uint64_t length);

/** How a part of a file will be used, as for posix_fadvise(2). */
enum {
	/** Nothing special: what is read in order is read ahead. */
	NOWAIT_ADVICE_NORMAL = 0,
	/** Only what is asked for is worth reading. */
	NOWAIT_ADVICE_RANDOM = 1,
	/** It will be read in order: read far ahead. */
	NOWAIT_ADVICE_SEQUENTIAL = 2,
	/** It will be needed soon: begin to read it. */
	NOWAIT_ADVICE_WILLNEED = 3,
	/** It will not be needed: what is cached and not changed may go. */
	NOWAIT_ADVICE_DONTNEED = 4
};

/**
 * Says how `length` bytes at `offset` will be used, NOWAIT_ADVICE_*; with length 0 all from
 * `offset` on. A hint, which changes no result. Never waits for a file in NOWAIT_CACHE_USER.
 *
 * NORMAL, RANDOM and SEQUENTIAL hold for all of this open file, whatever the part, except in
 * NOWAIT_CACHE_HOST.
 * Errors: -EINVAL: no such advice. Those of posix_fadvise(2).
 */
int nowait_file_advise(nowait_file *file, uint64_t offset, uint64_t length, int advice);

/**
 * Reads up to `length` bytes at `offset`. Blocks, and goes on after a signal.
 *
 * Returns how many bytes: fewer than asked for at the end of the file only, or beyond 2 GiB.
 * Errors: -EBADF: not open for reading. -EINVAL: not aligned as direct I/O needs it. Those of
 * pread(2).
 */
int64_t nowait_read(nowait_file *file, void *buffer, size_t length, uint64_t offset);

/**
 * Writes up to `length` bytes at `offset`. Blocks, and goes on after a signal.
 *
 * Returns how many bytes: fewer than given only if the device is full or beyond 2 GiB.
 * Errors: -EBADF: not open for writing. -EINVAL: not aligned as direct I/O needs it. Those of
 * pwrite(2).
 */
int64_t nowait_write(nowait_file *file, const void *buffer, size_t length, uint64_t offset);

/**
 * Reads into `count` buffers, one after another, as nowait_read() into one.
 *
 * Errors: those of nowait_read(); -EINVAL: more than 1024 buffers.
 */
int64_t nowait_readv(nowait_file *file, const struct iovec *iov, size_t count, uint64_t offset);

/**
 * Writes `count` buffers, one after another, as nowait_write() one.
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

/** Bytes of a file in the page cache that stay as they are, where they are. */
typedef struct nowait_loan nowait_loan;

/**
 * Lends the bytes at `offset`, up to `length` and the end of the file, if the file is in mode
 * NOWAIT_CACHE_USER and all of them are in the page cache. Never waits, reads nothing.
 *
 * Meanwhile writes to these pages wait: do not wait for one before you give the loan back. Lend
 * little, and not for long: the memory cannot be used for anything else.
 * Errors: -EAGAIN: not cached, or being changed: read them. -EBADF: not open for
 * reading.
 */
int nowait_lend(nowait_file *file, uint64_t offset, size_t length, nowait_loan **loan);

/** A part of a file, in bytes. */
typedef struct nowait_range {
	uint64_t offset;
	uint64_t length;
} nowait_range;

/**
 * Lends `count` ranges as nowait_lend() does one: stores a loan for each at `loans`, or NULL where
 * that would say -EAGAIN. Faster than one by one: the processor fetches the next ones from memory
 * meanwhile. Never waits, reads nothing.
 *
 * Returns how many were lent.
 * Errors, and then all are NULL: -EBADF: not open for reading. -EINVAL: an offset beyond the end of
 * every file.
 */
int nowait_lend_many(nowait_file *file, const nowait_range *ranges, size_t count,
		     nowait_loan **loans);

/** Returns how many bytes are lent: fewer than asked for at the end of the file only. */
size_t nowait_loan_length(const nowait_loan *loan);

/**
 * Stores where the bytes are: up to `max` pieces, in order; 4 to 256 KiB each, less at the ends.
 * They must only be read. `iov` may be NULL if `max` is 0.
 *
 * Returns how many pieces there are, which may be more than `max`.
 */
size_t nowait_loan_pieces(const nowait_loan *loan, struct iovec *iov, size_t max);

/** Gives a loan back: the pieces must not be read any more. */
void nowait_loan_return(nowait_loan *loan);

/* ---- Queues: many requests at a time ------------------------------------------------------ */

/** Requests in flight, and their completions. */
typedef struct nowait_queue nowait_queue;

/** What a request asks for. */
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
	/** Wait until `fd` is ready for one of `events`, those of poll(2), once. */
	NOWAIT_OP_POLL = 7,
	/** Read up to `length` bytes to `buffer` from the pipe, socket or terminal `fd`, waiting for
	 * the first one, as read(2) does; the descriptor need not be non-blocking. */
	NOWAIT_OP_READ_STREAM = 8,
	/** Write up to `length` bytes from `buffer` to the pipe, socket or terminal `fd`, waiting for
	 * room for the first one, as write(2) does. */
	NOWAIT_OP_WRITE_STREAM = 9,
	/** Make `length` bytes at `offset` durable, as nowait_file_sync_range(); covers the writes to
	 * them submitted before. */
	NOWAIT_OP_SYNC_RANGE = 10,
	/** NOWAIT_OP_READ_STREAM to `length` buffers; `buffer` is the address of an array of struct
	 * iovec. */
	NOWAIT_OP_READV_STREAM = 11,
	/** NOWAIT_OP_WRITE_STREAM from `length` buffers; `buffer` is the address of an array of
	 * struct iovec. */
	NOWAIT_OP_WRITEV_STREAM = 12
};

/**
 * In nowait_request.flags: the next request of the same call begins when this one has succeeded; a
 * sync after its write, for example. If this one fails, is short, or is cancelled, the next one
 * ends with -ECANCELED, and so do those linked to it. Chains that find too little room in the queue
 * are not begun. A transfer of a stream cannot begin after another request.
 */
#define NOWAIT_LINK 1u

/** A request; fields that its operation does not name must be 0. Filled in by nowait_prep_*(). */
typedef struct nowait_request {
	/** NOWAIT_OP_*. */
	uint16_t op;
	/** NOWAIT_LINK. */
	uint16_t flags;
	/** NOWAIT_OP_POLL and streams: a descriptor, to be kept open until nowait_submit() has
	 * returned. */
	int32_t fd;
	/** The file; NULL where there is a descriptor. */
	nowait_file *file;
	/** The memory, or the array of struct iovec. That of a write is only read. */
	void *buffer;
	/** Bytes, or buffers. */
	uint64_t length;
	/** Where in the file, in bytes. */
	uint64_t offset;
	/** NOWAIT_OP_POLL: POLLIN and its like. */
	uint32_t events;
	uint32_t reserved_events;
	/** Given back with the completion: what the program knows the request by. */
	uint64_t user_data;
	/** 0, or: cancelled if it has not ended so many nanoseconds after nowait_submit(). It then
	 * ends with -ETIMEDOUT, as far as nowait_cancel() can stop it. */
	uint64_t timeout_ns;
	uint64_t reserved[2];
} nowait_request;

/** The end of a request. */
typedef struct nowait_completion {
	/** That of the request. */
	uint64_t user_data;
	/** Bytes transferred, fewer than asked for at the end of the file only, or beyond 2 GiB; the
	 * ready events of a poll; 0 for a sync; or a negative error number. */
	int64_t result;
	uint64_t reserved[2];
} nowait_completion;

/** As a timeout: wait as long as it takes. */
#define NOWAIT_FOREVER INT64_C(-1)

/** Most requests of one queue. */
#define NOWAIT_DEPTH_MAX 65536

/**
 * Makes a queue for up to `depth` requests, counted from nowait_submit() until their completion was
 * given out.
 *
 * Errors: -EINVAL: `depth` is 0 or above NOWAIT_DEPTH_MAX, or the engine is that of the parent
 * process. -ENOMEM.
 */
int nowait_queue_create(nowait_engine *engine, uint32_t depth, nowait_queue **queue);

/**
 * Gives up a queue. Waits for what is in flight, because it uses buffers of the program; polls, and
 * reads and writes of streams that are not ready, are cancelled. Completions that were not reaped
 * are lost.
 */
void nowait_queue_destroy(nowait_queue *queue);

/**
 * Starts up to `count` requests, in order, and hands them over together. Never waits.
 *
 * Returns how many were accepted. Each of these ends in exactly one completion, whatever becomes of
 * it, and its buffer is lent until then. The first that cannot be accepted ends the call, and
 * nothing was started of it, of its chain, and of those behind it; submit them again.
 *
 * Requests end in any order. Those that overlap on one buffered file, at least one of them a
 * write, take effect in the order in which they were submitted.
 * Errors, if the first one cannot be accepted: -EAGAIN: the queue is full: reap. -EBADF: the file
 * is not open for this. -EINVAL: malformed, not aligned as direct I/O needs it, or more than 1024
 * buffers; a link to nothing, or a chain longer than the queue is deep. -EBUSY: another thread uses
 * the queue.
 */
int nowait_submit(nowait_queue *queue, const nowait_request *requests, size_t count);

/**
 * Takes up to `max` completions, when at least `min` have ended or `timeout_ns` nanoseconds have
 * passed (0: at once; NOWAIT_FOREVER). Never waits for more than are in flight, nor for more than
 * `max`. Goes on after a signal.
 *
 * Returns how many were stored at `completions`, perhaps fewer than `min`: then the time is over
 * or nothing else is in flight.
 * Errors: -EINVAL: the queue is the parent process's. -EBUSY: another thread uses the queue.
 */
int nowait_reap(nowait_queue *queue, nowait_completion *completions, size_t max, size_t min,
		int64_t timeout_ns);

/**
 * Asks for an early end of the request with this `user_data`; if several have it, of one of them.
 * Never waits.
 *
 * Returns 0: it ends as every other, once: with -ECANCELED if it had not begun, waits for another
 * request, for readiness, or for its turn; else as it would have, for example what the device works
 * on.
 * Errors: -ENOENT: there is none, or it has ended. -EBUSY: another thread uses the queue.
 */
int nowait_cancel(nowait_queue *queue, uint64_t user_data);

/** Returns how many requests the queue has: in flight, and ended but not reaped. -EBUSY: another
 * thread uses it. */
int nowait_queue_length(nowait_queue *queue);

/**
 * Returns a descriptor that poll(2), epoll(7) and io_uring find readable when nowait_reap() has
 * something to give: for programs with an event loop of their own. Makes it at the first call; it
 * stays the queue's, which closes it.
 *
 * nowait_reap() resets it and, if something is left, makes it readable again: nothing is missed,
 * level- or edge-triggered. Only wait for it; neither read nor write it. A queue that has one
 * ends its requests on the engine's threads, at the price of a thread switch for those not cached.
 * Errors: -EMFILE, -ENFILE, -EAGAIN: no descriptor. -EINVAL: this is a forked child. -EBUSY:
 * another thread uses the queue.
 */
int nowait_queue_fd(nowait_queue *queue);

/**
 * Writes a report of the queue to `text` as nowait_engine_report() does, with what the queue did
 * if the engine was started with NOWAIT_COUNT. -EBUSY: another thread uses the queue.
 */
int64_t nowait_queue_report(nowait_queue *queue, char *text, size_t size);

/* ---- Filling in requests ------------------------------------------------------------------ */

/** Fills in what the operations on a file share; the others call it. */
static inline void nowait_prep(nowait_request *request, uint16_t op, nowait_file *file,
			       uint64_t user_data)
{
	memset(request, 0, sizeof(*request));
	request->op = op;
	request->file = file;
	request->user_data = user_data;
}

/** A read of `length` bytes at `offset` to `buffer`, which is lent until the completion. */
static inline void nowait_prep_read(nowait_request *request, nowait_file *file, void *buffer,
				    size_t length, uint64_t offset, uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_READ, file, user_data);
	request->buffer = buffer;
	request->length = length;
	request->offset = offset;
}

/** A write of `length` bytes from `buffer`, which is lent until the completion, at `offset`. */
static inline void nowait_prep_write(nowait_request *request, nowait_file *file,
				     const void *buffer, size_t length, uint64_t offset,
				     uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_WRITE, file, user_data);
	request->buffer = (void *)(uintptr_t)buffer;
	request->length = length;
	request->offset = offset;
}

/** A read at `offset` to `count` buffers, one after another; they are lent until the completion,
 * the array `iov` until nowait_submit() has returned. */
static inline void nowait_prep_readv(nowait_request *request, nowait_file *file,
				     const struct iovec *iov, size_t count, uint64_t offset,
				     uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_READV, file, user_data);
	request->buffer = (void *)(uintptr_t)iov;
	request->length = count;
	request->offset = offset;
}

/** A write of `count` buffers, one after another, at `offset`; lent as by nowait_prep_readv(). */
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

/** A sync of `length` bytes at `offset`, of all from `offset` on if `length` is 0, that covers the
 * writes to them submitted before. */
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

/** A read from the pipe, socket or terminal `fd` to `count` buffers, one after another; lent as by
 * nowait_prep_readv(). */
static inline void nowait_prep_readv_stream(nowait_request *request, int fd,
					    const struct iovec *iov, size_t count,
					    uint64_t user_data)
{
	nowait_prep(request, NOWAIT_OP_READV_STREAM, NULL, user_data);
	request->fd = fd;
	request->buffer = (void *)(uintptr_t)iov;
	request->length = count;
}

/** A write of `count` buffers, one after another, to the pipe, socket or terminal `fd`; lent as by
 * nowait_prep_readv(). */
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
