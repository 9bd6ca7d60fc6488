//! Calls the functions as a C program does, on every backend.

use core::{ffi::CStr, ptr, ptr::null_mut};
use nowait_block::skip::note_skip_here;
use nowait_capi::*;
use nowait_sys::{
    Errno,
    eventfd::{self, EventFd},
    file::{IoVec, O_APPEND, O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY},
    poll,
};
use std::{
    ffi::CString,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Barrier, atomic::AtomicUsize, atomic::Ordering::SeqCst},
    thread,
};

const USER: i32 = 0;
const HOST: i32 = 1;
const DIRECT: i32 = 2;
const BLOCK: usize = 4096;
const FOREVER: i64 = -1;
const POLL_IN: i16 = 1;

#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn negative(errno: Errno) -> i32 {
    -errno.raw()
}

fn error_text() -> String {
    // SAFETY: valid until the next call.
    unsafe { CStr::from_ptr(nowait_error_text()) }.to_str().unwrap().to_owned()
}

struct Owned(*mut Engine);

impl Owned {
    fn new(options: Options) -> Owned {
        let mut engine = null_mut();
        // SAFETY: valid pointers.
        let result = unsafe { nowait_engine_create(&raw const options, &raw mut engine) };
        assert_eq!(result, 0, "{}", error_text());
        Owned(engine)
    }

    fn open(&self, path: &Path, flags: i32, cache: i32) -> Result<*mut File, i32> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut file = ptr::dangling_mut();
        // SAFETY: valid pointers.
        let result =
            unsafe { nowait_file_open(self.0, path.as_ptr(), flags, 0o600, cache, &raw mut file) };
        assert_eq!(result == 0, !file.is_null(), "null if it fails");
        if result == 0 { Ok(file) } else { Err(result) }
    }

    fn queue(&self, depth: u32) -> *mut Queue {
        let mut queue = null_mut();
        // SAFETY: valid pointers.
        let result = unsafe { nowait_queue_create(self.0, depth, &raw mut queue) };
        assert_eq!(result, 0, "{}", error_text());
        queue
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the test's own handle, not used again.
        unsafe { nowait_engine_destroy(self.0) }
    }
}

fn options() -> Options {
    Options { size: size_of::<Options>(), cache_bytes: 8 << 20, ..Options::default() }
}

fn everywhere(claim: impl Fn(&Owned, &Path, i32)) {
    // io_uring comes last: the end of a ring interrupts the threads that used the ring.
    for backend in [2, 3, 1] {
        let options = Options { backend, flags: 1, ..options() };
        let mut engine = null_mut();
        // SAFETY: valid pointers.
        if unsafe { nowait_engine_create(&raw const options, &raw mut engine) } != 0 {
            note_skip_here(&error_text());
            continue;
        }
        let engine = Owned(engine);
        for cache in [USER, HOST, DIRECT] {
            // /var/tmp is mostly on a disk: direct I/O on a memory file system behaves differently.
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            claim(&engine, folder.path(), cache);
        }
    }
}

fn request(op: u16, file: *mut File, memory: &mut [u8], offset: usize, user_data: u64) -> Request {
    Request {
        op,
        flags: 0,
        fd: 0,
        file,
        buffer: if memory.is_empty() { null_mut() } else { memory.as_mut_ptr().cast() },
        length: memory.len() as u64,
        offset: offset as u64,
        events: 0,
        reserved_events: 0,
        user_data,
        timeout_ns: 0,
        reserved: [0; 2],
    }
}

fn submit(queue: *mut Queue, requests: &[Request]) -> i32 {
    // SAFETY: the tests keep the memory that they lend.
    unsafe { nowait_submit(queue, requests.as_ptr(), requests.len()) }
}

fn reap(queue: *mut Queue, max: usize, min: usize, timeout_ns: i64) -> Vec<Completion> {
    let mut done = vec![Completion::default(); max];
    // SAFETY: `done` has room for `max`.
    let count = unsafe { nowait_reap(queue, done.as_mut_ptr(), max, min, timeout_ns) };
    done.truncate(usize::try_from(count).unwrap_or_else(|_| panic!("{count}: {}", error_text())));
    done
}

#[test]
fn what_is_written_is_read_by_requests_that_block() {
    everywhere(|engine, folder, cache| {
        let file = engine.open(&folder.join("file"), O_RDWR | O_CREAT, cache).unwrap();
        let mut blocks = [Block([1; BLOCK]), Block([2; BLOCK])];
        let mut iov = blocks.each_mut().map(|b| IoVec { base: b.0.as_mut_ptr(), len: BLOCK });
        // SAFETY: valid pointers; the test owns the memory.
        unsafe {
            assert_eq!(nowait_writev(file, iov.as_ptr(), 2, 0), 2 * BLOCK as i64);
            assert_eq!(nowait_write_all(file, iov[0].base.cast(), BLOCK, 2 * BLOCK as u64), 0);
            assert_eq!(nowait_file_sync_range(file, BLOCK as u64, 1), 0);
            assert_eq!(nowait_file_sync_range(file, 0, 0), 0);
            assert_eq!((nowait_file_datasync(file), nowait_file_sync(file)), (0, 0));
            for advice in 0..5 {
                assert_eq!(nowait_file_advise(file, 0, 0, advice), 0, "{}", error_text());
            }
            assert_eq!(nowait_file_advise(file, 0, 0, 5), negative(Errno::INVAL));
            let (mut size, mut memory, mut offset) = (0, 0, 0);
            assert_eq!(nowait_file_size(file, &raw mut size), 0);
            assert_eq!(size, 3 * BLOCK as u64);
            nowait_file_alignment(file, &raw mut memory, &raw mut offset);
            nowait_file_alignment(file, null_mut(), null_mut());
            assert_eq!(offset > 1, cache == DIRECT);

            iov.reverse();
            assert_eq!(nowait_readv(file, iov.as_ptr(), 2, 0), 2 * BLOCK as i64);
            assert_eq!((blocks[0].0[0], blocks[1].0[BLOCK - 1]), (2, 1), "filled in order");
            assert_eq!(nowait_read_exact(file, iov[0].base.cast(), BLOCK, 0), 0);
            assert_eq!(nowait_file_truncate(file, BLOCK as u64), 0);
            assert_eq!(nowait_read(file, iov[0].base.cast(), BLOCK, BLOCK as u64), 0);
            let short = nowait_read_exact(file, iov[0].base.cast(), BLOCK, BLOCK as u64);
            assert_eq!(short, negative(Errno::NODATA));
            assert!(error_text().contains("the file ends after 0 bytes"), "{}", error_text());
            assert_eq!(
                nowait_readv(file, iov.as_ptr(), 1025, 0),
                i64::from(negative(Errno::INVAL))
            );
            assert!(nowait_file_fd(file) >= 0);
            nowait_file_close(file);
        }
    });
}

#[test]
fn an_open_that_truncates_cuts_off_what_is_in_the_page_cache_only() {
    everywhere(|engine, folder, cache| {
        let path = folder.join("file");
        let first = engine.open(&path, O_RDWR | O_CREAT, USER).unwrap();
        let bytes = [1u8; BLOCK];
        // SAFETY: valid pointers; the test owns the memory.
        unsafe {
            assert_eq!(nowait_write_all(first, bytes.as_ptr().cast(), BLOCK, 0), 0);
            let second = engine.open(&path, O_WRONLY | O_TRUNC, cache).unwrap();
            let mut size = 1;
            assert_eq!((nowait_file_size(first, &raw mut size), size), (0, 0));
            nowait_file_close(first);
            nowait_file_close(second);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    });
}

#[test]
fn a_queue_takes_what_fits_and_every_accepted_request_ends_once() {
    everywhere(|engine, folder, cache| {
        let file = engine.open(&folder.join("file"), O_RDWR | O_CREAT | O_TRUNC, cache).unwrap();
        let queue = engine.queue(3);
        let mut blocks: Vec<Block> = (0..4).map(|n| Block([n; BLOCK])).collect();
        let mut writes = Vec::new();
        for (n, block) in blocks.iter_mut().enumerate() {
            writes.push(request(op::WRITE, file, &mut block.0, n * BLOCK, 100 + n as u64));
        }
        assert_eq!(submit(queue, &[]), 0);
        assert_eq!(submit(queue, &writes), 3, "a partial count");
        // SAFETY: a queue.
        assert_eq!(unsafe { nowait_queue_length(queue) }, 3);
        assert_eq!(submit(queue, &writes[3..]), negative(Errno::AGAIN));
        assert!(error_text().contains("reap first"), "{}", error_text());
        let mut done = reap(queue, 2, 2, FOREVER);
        assert_eq!(submit(queue, &writes[3..]), 1);
        done.extend(reap(queue, 8, 8, FOREVER));
        let mut tags: Vec<u64> = done.iter().map(|done| done.user_data).collect();
        tags.sort_unstable();
        assert_eq!(tags, [100, 101, 102, 103]);
        assert!(done.iter().all(|done| done.result == BLOCK as i64), "{done:?}");
        assert_eq!(reap(queue, 8, 8, FOREVER).len(), 0, "nothing is in flight: no wait");

        // The array of vectors is copied.
        let mut read = [Block([9; BLOCK]), Block([9; BLOCK])];
        let mut iov = read.each_mut().map(|b| IoVec { base: b.0.as_mut_ptr(), len: BLOCK });
        let mut readv = request(op::READV, file, &mut [], 2 * BLOCK, 7);
        (readv.buffer, readv.length) = (iov.as_mut_ptr().cast(), 2);
        let sync = request(op::DATASYNC, file, &mut [], 0, 8);
        assert_eq!(submit(queue, &[readv, sync]), 2);
        iov.fill(IoVec { base: null_mut(), len: usize::MAX });
        let done = reap(queue, 8, 2, FOREVER);
        let results = done.iter().map(|done| (done.user_data, done.result));
        let mut results: Vec<_> = results.collect();
        results.sort_unstable();
        assert_eq!(results, [(7, 2 * BLOCK as i64), (8, 0)]);
        assert_eq!((read[0].0[5], read[1].0[5]), (2, 3));
        let mut report = [0; 4096];
        // SAFETY: the test owns all handles; it closes the file before the queue, and the engine
        // last.
        unsafe {
            let length = nowait_queue_report(queue, report.as_mut_ptr(), report.len());
            let text = CStr::from_ptr(report.as_ptr()).to_str().unwrap();
            assert_eq!(length, text.len() as i64);
            assert!(text.contains("\"requests\":6"), "{text}");
            nowait_file_close(file);
            nowait_queue_destroy(queue);
        }
    });
}

#[test]
fn destroying_a_queue_waits_until_no_buffer_is_in_use() {
    everywhere(|engine, folder, cache| {
        let path = folder.join("file");
        std::fs::write(&path, vec![5; 64 * BLOCK]).unwrap();
        let file = engine.open(&path, O_RDONLY, cache).unwrap();
        let queue = engine.queue(64);
        let mut blocks: Vec<Block> = (0..64).map(|_| Block([0; BLOCK])).collect();
        let reads: Vec<_> = blocks
            .iter_mut()
            .enumerate()
            .map(|(n, block)| request(op::READ, file, &mut block.0, n * BLOCK, 0))
            .collect();
        assert_eq!(submit(queue, &reads), 64);
        // SAFETY: ours, and not used again.
        unsafe {
            nowait_file_close(file);
            nowait_queue_destroy(queue);
        }
        assert!(blocks.iter().all(|block| block.0 == [5; BLOCK]));
    });
}

#[test]
fn the_descriptor_of_a_queue_is_readable_while_there_is_something_to_reap() {
    everywhere(|engine, folder, cache| {
        let file = engine.open(&folder.join("file"), O_RDWR | O_CREAT, cache).unwrap();
        let queue = engine.queue(8);
        // SAFETY: a queue.
        let fd = unsafe { nowait_queue_fd(queue) };
        assert!(fd >= 0, "{}", error_text());
        let wait = || {
            let deadline = nowait_sys::time::Deadline::after_ns(20_000_000_000);
            usize::from(poll::ppoll(fd, POLL_IN, deadline, None).unwrap() != 0)
        };
        assert_eq!(poll::ready(fd, POLL_IN), Ok(0));
        let mut blocks: Vec<Block> = (0..5).map(|n| Block([n; BLOCK])).collect();
        for op in [op::WRITE, op::READ] {
            let requests: Vec<_> = blocks
                .iter_mut()
                .enumerate()
                .map(|(n, block)| request(op, file, &mut block.0, n * BLOCK, 0))
                .collect();
            assert_eq!(submit(queue, &requests), 5);
            let mut ended = 0;
            while ended < 5 {
                assert_eq!(wait(), 1, "a wake-up was lost after {ended}");
                ended += reap(queue, 2, 0, 0).len();
            }
            // The eventfd may have been signalled once more, without a completion. No other signal
            // follows.
            assert_eq!(reap(queue, 2, 0, 0).len(), 0);
        }
        // SAFETY: ours, and not used again.
        unsafe {
            nowait_queue_destroy(queue);
            nowait_file_close(file);
        }
    });
}

#[test]
fn a_poll_ends_when_its_descriptor_is_ready_and_is_cancelled_with_its_queue() {
    everywhere(|engine, _, _| {
        let (ready, never) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let queue = engine.queue(2);
        let poll = |fd: i32, user_data| {
            let mut poll = request(op::POLL, null_mut(), &mut [], 0, user_data);
            (poll.fd, poll.events) = (fd, POLL_IN as u32);
            poll
        };
        assert_eq!(submit(queue, &[poll(ready.raw(), 1), poll(never.raw(), 2)]), 2);
        assert_eq!(reap(queue, 2, 1, 0).len(), 0);
        eventfd::signal(ready.raw());
        let done = reap(queue, 2, 1, FOREVER);
        assert_eq!((done[0].user_data, done[0].result), (1, i64::from(POLL_IN)));
        assert_eq!(submit(queue, &[poll(-1, 3)]), negative(Errno::BADF));
        // SAFETY: ours, and not used again.
        unsafe { nowait_queue_destroy(queue) };
    });
}

#[test]
fn cached_bytes_are_lent_and_others_are_not() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![3; 10_000]).unwrap();
    let engine = Owned::new(options());
    let mut buffer = vec![0; 20_000];
    for cache in [HOST, USER] {
        let file = engine.open(&path, O_RDONLY, cache).unwrap();
        let mut loan = null_mut();
        // SAFETY: valid pointers; ours, and not used again.
        unsafe {
            let refused = nowait_lend(file, 0, 100, &raw mut loan);
            assert_eq!((refused, loan), (negative(Errno::AGAIN), null_mut()));
            assert_eq!(nowait_read(file, buffer.as_mut_ptr().cast(), 20_000, 0), 10_000);
            if cache == USER {
                assert_eq!(nowait_lend(file, 4000, 50_000, &raw mut loan), 0, "{}", error_text());
                assert_eq!(nowait_loan_length(loan), 6000);
                let count = nowait_loan_pieces(loan, null_mut(), 0);
                let mut pieces = vec![IoVec { base: null_mut(), len: 0 }; count];
                assert_eq!(nowait_loan_pieces(loan, pieces.as_mut_ptr(), count), count);
                let bytes = pieces.iter().map(|piece| piece.len).sum::<usize>();
                assert_eq!((bytes, *pieces[0].base), (6000, 3));
                let ranges = [(0, 10), (90_000, 10), (5000, 5000)];
                let ranges = ranges.map(|(offset, length)| Range { offset, length });
                let mut loans = [ptr::dangling_mut(); 3];
                assert_eq!(nowait_lend_many(file, ranges.as_ptr(), 3, loans.as_mut_ptr()), 3);
                assert_eq!(loans.map(|loan| nowait_loan_length(loan)), [10, 0, 5000]);
                // The loans keep the engine and the file alive.
                nowait_file_close(file);
                loans.into_iter().chain([loan]).for_each(|loan| nowait_loan_return(loan));
            } else {
                nowait_file_close(file);
            }
        }
    }
}

#[test]
fn malformed_requests_are_refused_before_they_start() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("file");
    let engine = Owned::new(options());
    let file = engine.open(&path, O_WRONLY | O_CREAT, DIRECT).unwrap();
    let queue = engine.queue(4);
    let mut block = Block([0; BLOCK]);
    let good = request(op::WRITE, file, &mut block.0, 0, 0);
    let refuse = |errno: Errno, text: &str, change: &dyn Fn(&mut Request)| {
        let mut wrong = good;
        change(&mut wrong);
        assert_eq!(submit(queue, &[wrong]), negative(errno), "{text}");
        assert!(error_text().contains(text), "{} for {text}", error_text());
    };
    refuse(Errno::INVAL, "NOWAIT_OP", &|r| r.op = 0);
    refuse(Errno::INVAL, "NOWAIT_OP", &|r| r.op = 999);
    refuse(Errno::INVAL, "needs file", &|r| r.file = null_mut());
    refuse(Errno::INVAL, "file must be NULL", &|r| r.op = op::POLL);
    refuse(Errno::INVAL, "must be 0", &|r| r.flags = 2);
    refuse(Errno::INVAL, "linked to nothing", &|r| r.flags = LINK);
    refuse(Errno::INVAL, "must be 0", &|r| r.reserved[1] = 1);
    refuse(Errno::INVAL, "must be 0", &|r| r.events = 1);
    refuse(Errno::INVAL, "must be 0", &|r| r.op = op::SYNC);
    refuse(Errno::INVAL, "at most 1024", &|r| (r.op, r.length) = (op::WRITEV, 1025));
    refuse(Errno::INVAL, "multiple of", &|r| r.offset = 1);
    refuse(Errno::INVAL, "largest file offset", &|r| r.offset = !4095);
    refuse(Errno::BADF, "not open for reading", &|r| r.op = op::READ);
    let mut wrong = good;
    wrong.op = 0;
    assert_eq!(submit(queue, &[good, wrong, good]), 1, "the first that is malformed ends the call");
    assert_eq!(reap(queue, 4, 4, FOREVER).len(), 1);
    // SAFETY: ours, and not used again.
    unsafe {
        nowait_queue_destroy(queue);
        nowait_file_close(file);
    }
    assert_eq!(engine.open(&path, O_APPEND | O_WRONLY, USER), Err(negative(Errno::INVAL)));
    assert_eq!(engine.open(&path, O_RDONLY, 3), Err(negative(Errno::INVAL)));
    assert_eq!(engine.open(&path.join("x"), O_RDONLY, USER), Err(negative(Errno::new(20))));
    assert!(error_text().starts_with("open of /var/tmp/"), "{}", error_text());
}

#[test]
fn a_queue_in_use_elsewhere_is_busy_not_broken() {
    let engine = Owned::new(options());
    let counter = EventFd::new().unwrap();
    let queue = engine.queue(1);
    let mut poll = request(op::POLL, null_mut(), &mut [], 0, 1);
    (poll.fd, poll.events) = (counter.raw(), POLL_IN as u32);
    assert_eq!(submit(queue, &[poll]), 1);
    let (address, ended, begun) = (queue as usize, AtomicUsize::new(0), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            ended.store(reap(address as *mut Queue, 1, 1, FOREVER).len(), SeqCst);
        });
        begun.wait();
        // SAFETY: a queue.
        while unsafe { nowait_queue_length(queue) } != negative(Errno::BUSY) {
            thread::yield_now();
        }
        assert_eq!(submit(queue, &[poll]), negative(Errno::BUSY));
        counter.signal();
    });
    assert_eq!(ended.load(SeqCst), 1);
    // SAFETY: ours, and not used again.
    unsafe { nowait_queue_destroy(queue) };
}

#[test]
fn options_of_older_and_newer_programs_are_understood() {
    let start = |options: *const Options| {
        let mut engine = ptr::dangling_mut();
        // SAFETY: valid pointers; destroying null does nothing.
        unsafe {
            let result = nowait_engine_create(options, &raw mut engine);
            assert_eq!(result == 0, !engine.is_null());
            nowait_engine_destroy(engine);
            result
        }
    };
    assert_eq!(start(ptr::null()), 0);
    let older = Options { size: 16, cache_bytes: u64::MAX, ..options() };
    assert_eq!(start(&raw const older), 0, "what it does not have is not read");
    #[repr(C)]
    struct Newer(Options, u64);
    let mut newer = Newer(Options { size: size_of::<Newer>(), ..options() }, 0);
    assert_eq!(start((&raw const newer).cast()), 0);
    newer.1 = 1;
    assert_eq!(start((&raw const newer).cast()), negative(Errno::INVAL));
    for wrong in [
        Options { size: 0, ..options() },
        Options { backend: 9, ..options() },
        Options { submit: 9, ..options() },
        Options { flags: 4, ..options() },
        Options { workers: 1025, ..options() },
    ] {
        assert_eq!(start(&raw const wrong), negative(Errno::INVAL), "{wrong:?}");
    }
    let inline = Options { submit: 1, ..options() };
    assert_eq!(start(&raw const inline), negative(Errno::INVAL));
    let text = error_text();
    assert!(text.contains("submit is 1 (inline), a mode that was removed"), "{text}");
    let engine = Owned::new(Options { backend: 3, ..options() });
    let mut text = [0; 8];
    // SAFETY: an engine, and memory of the size given.
    unsafe {
        assert_eq!(nowait_engine_backend(engine.0), 3);
        assert_eq!(CStr::from_ptr(nowait_engine_reason(engine.0)), c"asked for");
        assert!(nowait_engine_report(engine.0, text.as_mut_ptr(), 8) > 100);
        assert_eq!(CStr::from_ptr(text.as_ptr()), c"{\"backe");
    }
}

#[test]
fn errors_have_texts() {
    let text = |error| {
        // SAFETY: valid until the next call.
        unsafe { CStr::from_ptr(nowait_strerror(error)) }.to_str().unwrap().to_owned()
    };
    assert_eq!(text(-5), "Input/output error (os error 5) (EIO)");
    assert_eq!((text(5), text(0).as_str()), (text(-5), "Success"));
    assert!(!text(i32::MIN).is_empty() && !text(4095).is_empty());
    thread::spawn(|| assert_eq!(error_text(), "")).join().unwrap();
}

#[test]
fn a_request_is_cancelled_or_its_time_is_over_and_it_ends_once() {
    everywhere(|engine, _, _| {
        let (never, queue) = (EventFd::new().unwrap(), engine.queue(3));
        let mut poll = request(op::POLL, null_mut(), &mut [], 0, 1);
        (poll.fd, poll.events) = (never.raw(), POLL_IN as u32);
        let limited = Request { user_data: 2, timeout_ns: 1_000_000, ..poll };
        assert_eq!(submit(queue, &[poll, poll, limited]), 3);
        // SAFETY: a queue.
        let cancel = |user_data| unsafe { nowait_cancel(queue, user_data) };
        let none = negative(Errno::NOENT);
        assert_eq!([1, 1, 1, 3].map(cancel), [0, 0, none, none], "each cancel ends another poll");
        let mut done = reap(queue, 4, 3, FOREVER);
        done.sort_by_key(|done| done.user_data);
        let results: Vec<_> = done.iter().map(|done| done.result as i32).collect();
        let cancelled = negative(Errno::CANCELED);
        assert_eq!(results, [cancelled, cancelled, negative(Errno::TIMEDOUT)]);
        // SAFETY: ours, and not used again.
        unsafe {
            assert_eq!(nowait_cancel(queue, 1), negative(Errno::NOENT));
            nowait_queue_destroy(queue);
        }
    });
}

#[test]
fn a_linked_request_begins_after_a_success_only_and_a_chain_is_not_cut() {
    everywhere(|engine, folder, cache| {
        let file = engine.open(&folder.join("file"), O_RDWR | O_CREAT, cache).unwrap();
        let (queue, mut blocks) = (engine.queue(3), [Block([8; BLOCK]), Block([0; BLOCK])]);
        let [from, to] = &mut blocks;
        let linked = |request: Request| Request { flags: LINK, ..request };
        let write = linked(request(op::WRITE, file, &mut from.0, 0, 1));
        let sync = linked(request(op::DATASYNC, file, &mut [], 0, 2));
        let read = request(op::READ, file, &mut to.0, 0, 3);
        let results = || {
            let mut done = reap(queue, 4, 4, FOREVER);
            done.sort_by_key(|done| done.user_data);
            done.iter().map(|done| done.result).collect::<Vec<_>>()
        };
        assert_eq!(submit(queue, &[write, sync, read]), 3);
        assert_eq!(results(), [BLOCK as i64, 0, BLOCK as i64]);
        assert_eq!(to.0, [8; BLOCK]);

        let short = linked(request(op::READ, file, &mut to.0, BLOCK, 1));
        let canceled = i64::from(negative(Errno::CANCELED));
        assert_eq!(submit(queue, &[short, sync, read]), 3);
        assert_eq!(results(), [0, canceled, canceled]);

        assert_eq!(submit(queue, &[read, write, sync, read]), 1, "no room for the chain");
        assert_eq!(submit(queue, &[write, sync, read]), negative(Errno::AGAIN));
        assert_eq!(results(), [BLOCK as i64]);
        assert_eq!(submit(queue, &[write, sync, sync, read]), negative(Errno::INVAL));
        assert!(error_text().contains("longer"), "{}", error_text());
        // SAFETY: ours, and not used again.
        unsafe {
            nowait_queue_destroy(queue);
            nowait_file_close(file);
        }
    });
}

#[test]
fn a_chain_with_a_malformed_request_is_refused_as_a_whole() {
    everywhere(|engine, folder, cache| {
        let file = engine.open(&folder.join("file"), O_RDWR | O_CREAT, cache).unwrap();
        let (queue, mut block) = (engine.queue(8), Block([8; BLOCK]));
        let linked = |request: Request| Request { flags: LINK, ..request };
        let mut write = |user| request(op::WRITE, file, &mut block.0, 0, user);
        let malformed = Request { reserved: [1, 0], ..request(op::DATASYNC, file, &mut [], 0, 3) };
        let (first, second) = (linked(write(1)), linked(write(2)));
        assert_eq!(submit(queue, &[first, second, malformed]), negative(Errno::INVAL));
        let sync = request(op::DATASYNC, file, &mut [], 0, 4);
        assert_eq!(submit(queue, &[sync, first, second, malformed, sync]), 1);
        let done = reap(queue, 8, 1, FOREVER);
        assert_eq!(done.iter().map(|done| done.user_data).collect::<Vec<_>>(), [4]);
        // SAFETY: ours, and not used again.
        unsafe {
            assert_eq!(nowait_queue_length(queue), 0, "nothing of the chain");
            let mut size = 0;
            assert_eq!(nowait_file_size(file, &raw mut size), 0);
            assert_eq!(size, 0, "nor was it written");
            nowait_queue_destroy(queue);
            nowait_file_close(file);
        }
    });
}

#[test]
fn a_part_of_a_file_is_made_durable_behind_the_writes_to_it() {
    everywhere(|engine, folder, cache| {
        let file = engine.open(&folder.join("file"), O_RDWR | O_CREAT, cache).unwrap();
        let queue = engine.queue(8);
        let mut from = Block([9; BLOCK]);
        for round in 0..8u64 {
            let offset = round as usize % 2 * BLOCK;
            let write = request(op::WRITE, file, &mut from.0, offset, 1);
            let mut part = request(op::SYNC_RANGE, file, &mut [], offset, 2);
            part.length = if round < 4 { BLOCK as u64 } else { 0 };
            let read = request(op::READ, file, &mut [], 0, 3);
            assert_eq!(submit(queue, &[write, part, read]), 3);
            let mut done = reap(queue, 3, 3, FOREVER);
            done.sort_by_key(|done| done.user_data);
            let results: Vec<_> = done.iter().map(|done| done.result).collect();
            assert_eq!(results, [BLOCK as i64, 0, 0], "round {round}");
        }
        let mut part = request(op::SYNC_RANGE, file, &mut [], 0, 1);
        part.offset = u64::MAX;
        assert_eq!(submit(queue, &[part]), negative(Errno::INVAL));
        part = Request { offset: 0, buffer: from.0.as_mut_ptr().cast(), ..part };
        assert_eq!(submit(queue, &[part]), negative(Errno::INVAL), "it has no memory");
        // SAFETY: ours, and not used again.
        unsafe {
            nowait_queue_destroy(queue);
            nowait_file_close(file);
        }
    });
}

#[test]
fn streams_take_vectors() {
    use std::os::fd::AsRawFd;
    everywhere(|engine, _, _| {
        let (reader, writer) = std::io::pipe().unwrap();
        let queue = engine.queue(2);
        let (mut hello, mut world) = (*b"hello ", *b"world");
        let (mut head, mut tail) = ([0; 3], [0; 20]);
        let part = |bytes: &mut [u8]| IoVec { base: bytes.as_mut_ptr(), len: bytes.len() };
        let mut out = [part(&mut hello), part(&mut []), part(&mut world)];
        let mut back = [part(&mut head), part(&mut tail)];
        let of = |op, fd, parts: &mut [IoVec], tag| {
            let mut request = request(op, null_mut(), &mut [], 0, tag);
            request.buffer = parts.as_mut_ptr().cast();
            request.length = parts.len() as u64;
            Request { fd, ..request }
        };
        let write = of(op::WRITEV_STREAM, writer.as_raw_fd(), &mut out, 1);
        let read = of(op::READV_STREAM, reader.as_raw_fd(), &mut back, 2);
        assert_eq!(submit(queue, &[write]), 1);
        out = [part(&mut []); 3]; // the array was copied
        assert_eq!(reap(queue, 1, 1, FOREVER)[0].result, 11);
        assert!(out.iter().all(|part| part.len == 0));
        assert_eq!(submit(queue, &[read]), 1);
        assert_eq!(reap(queue, 1, 1, FOREVER)[0].result, 11);
        assert_eq!((&head, &tail[..8]), (b"hel", &b"lo world"[..]));
        let too_many = Request { length: 1025, ..read };
        assert_eq!(submit(queue, &[too_many]), negative(Errno::INVAL));
        // SAFETY: ours, and not used again.
        unsafe { nowait_queue_destroy(queue) };
    });
}

#[test]
fn limits_refuse_with_eagain() {
    let engine = Owned::new(Options { max_requests: 2, max_bytes: 10_000, ..options() });
    let queue = engine.queue(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let poll = |tag| {
        let mut poll = request(op::POLL, null_mut(), &mut [], 0, tag);
        poll.fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
        Request { events: 1, ..poll }
    };
    assert_eq!(submit(queue, &[poll(1), poll(2), poll(3)]), 3);
    let refused = reap(queue, 3, 1, FOREVER);
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].user_data, refused[0].result), (3, i64::from(negative(Errno::AGAIN))));
    // SAFETY: ours, and not used again. The call cancels the polls.
    unsafe { nowait_queue_destroy(queue) };
}

#[test]
fn streams_move_what_is_there() {
    use std::os::fd::AsRawFd;
    everywhere(|engine, _, _| {
        let (reader, writer) = std::io::pipe().unwrap();
        let (queue, mut bytes) = (engine.queue(2), [0; 16]);
        let mut read = request(op::READ_STREAM, null_mut(), &mut bytes, 0, 1);
        read.fd = reader.as_raw_fd();
        let mut hello = *b"hello";
        let mut write = request(op::WRITE_STREAM, null_mut(), &mut hello, 0, 2);
        write.fd = writer.as_raw_fd();
        let after = Request { flags: LINK, ..write };
        let refused = submit(queue, &[after, read]);
        assert_eq!(refused, negative(Errno::OPNOTSUPP), "streams do not begin after another");
        assert_eq!(submit(queue, &[write]), 1);
        assert_eq!(reap(queue, 1, 1, FOREVER)[0].result, 5);
        assert_eq!(submit(queue, &[read]), 1);
        assert_eq!(reap(queue, 1, 1, FOREVER)[0].result, 5);
        assert_eq!(submit(queue, &[read, write]), 2);
        let mut tags: Vec<_> = reap(queue, 2, 2, FOREVER).iter().map(|d| d.user_data).collect();
        tags.sort_unstable();
        assert_eq!((tags, &bytes[..6]), (vec![1, 2], &b"hello\0"[..]));
        // SAFETY: ours, and not used again.
        unsafe { nowait_queue_destroy(queue) };
    });
}
