//! Programs about contexts that are destroyed, inherited, interrupted, polled or shared.
//!
//! `lifecycle CASE [FILE]` exits 0 if the case succeeds, else panics with the reason. A test checks
//! further results of some cases.

mod counters;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nowait_tests::request::{Context, Request};
use nowait_tests::thread_state::{spawn_until_asleep, wait_until};

use counters::{
    a_deferred_request_ends_the_calm, a_file_that_is_no_counter_is_refused,
    all_is_counted_when_the_context_is_destroyed, each_direct_request_is_counted_once,
    each_of_two_counters_is_signalled, eventfd_counts_completions, events_come_after_the_last_call,
    one_that_looks_at_the_ring_first_is_told, one_that_looks_before_it_reads_is_told_again,
    one_that_never_reads_its_counter_is_told, one_that_reads_its_counter_finds_the_events,
    one_that_reads_its_counter_last_goes_on,
};

const BLOCK: usize = 4096;
const EINVAL: i32 = -libc::EINVAL;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["destroy-in-flight", file] => destroy_waits(Path::new(file)),
        ["destroy-poll", ..] => destroy_ends_polls(),
        ["destroy-wakes", ..] => destroy_wakes_waiters(),
        ["thread-exit", file] => requests_outlive_their_thread(Path::new(file)),
        ["exit", file, way] => exit_right_after_submit(Path::new(file), way),
        ["fork", file] => fork_leaves_the_context_to_the_parent(Path::new(file)),
        ["exec", file] => exec_right_after_submit(Path::new(file)),
        ["executed", file] => executed(Path::new(file)),
        ["eventfd", file] => eventfd_counts_completions(Path::new(file)),
        ["eventfd-direct", file] => each_direct_request_is_counted_once(Path::new(file)),
        ["eventfd-peek", file] => one_that_looks_at_the_ring_first_is_told(Path::new(file)),
        ["eventfd-ring", file] => one_that_reads_its_counter_finds_the_events(Path::new(file)),
        ["eventfd-late", file] => one_that_reads_its_counter_last_goes_on(Path::new(file)),
        ["eventfd-look", file] => one_that_looks_before_it_reads_is_told_again(Path::new(file)),
        ["eventfd-edge", file] => one_that_never_reads_its_counter_is_told(Path::new(file)),
        ["eventfd-two", file] => each_of_two_counters_is_signalled(Path::new(file)),
        ["eventfd-file", file] => a_file_that_is_no_counter_is_refused(Path::new(file)),
        ["calls-then-deferred", file] => a_deferred_request_ends_the_calm(Path::new(file)),
        ["calls-then-ring", file] => events_come_after_the_last_call(Path::new(file)),
        ["eventfd-destroy", file] => all_is_counted_when_the_context_is_destroyed(Path::new(file)),
        ["idle", ..] => an_idle_wait_is_one_sleep(),
        ["own-table", file] => a_table_of_descriptors_ends_with_its_thread(Path::new(file)),
        ["poll", ..] => poll_reports_readiness(),
        ["poll-cancel", ..] => cancelled_polls_still_complete(),
        ["stream-cancel", ..] => cancelled_reads_of_streams_complete_once(),
        ["stream-turns", ..] => reads_of_a_stream_take_their_turns(),
        ["limits", ..] => limits_refuse_with_eagain(),
        ["pipe", ..] => an_empty_pipe_does_not_delay_others(),
        ["shared", file] => many_threads_share_a_context(Path::new(file)),
        ["waiters", file] => every_waiter_is_woken(Path::new(file)),
        _ => panic!("unknown case {args:?}"),
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Makes a file of `blocks` blocks, each filled with its number, and drops them from the kernel's
/// page cache.
fn uncached(path: &Path, blocks: usize) -> File {
    use std::os::fd::AsRawFd;
    let file = open(path);
    for block in 0..blocks {
        file.write_all_at(&[block as u8; BLOCK], (block * BLOCK) as u64).unwrap();
    }
    file.sync_all().unwrap();
    // SAFETY: plain numbers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    file
}

fn read_block(file: &File, block: usize) -> Request {
    Request::read(file.as_fd(), BLOCK, (block * BLOCK) as u64)
}

/// `io_destroy` returns when nothing can write to the buffers any more, and works only once.
fn destroy_waits(path: &Path) {
    for _ in 0..20 {
        let file = uncached(path, 64);
        let context = Context::new(64).expect("io_setup");
        assert_eq!(context.submit((0..64).map(|block| read_block(&file, block)).collect()), 64);
        assert_eq!(context.destroy(), 0);
        assert_eq!(context.destroy(), EINVAL, "a second io_destroy");
        // No io_getevents here: the system's library would look into the unmapped ring.
        assert_eq!(context.submit(vec![read_block(&file, 0)]), EINVAL, "io_submit afterwards");
    }
}

/// The test permits three requests in the process and two in each context. io_submit refuses
/// further requests before they begin; a request that has ended makes room for another.
fn limits_refuse_with_eagain() {
    const EAGAIN: i32 = -libc::EAGAIN;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (one, other) = (Context::new(8).expect("io_setup"), Context::new(8).expect("io_setup"));
    let polls = |count| (0..count).map(|_| Request::poll(reader.as_fd(), libc::POLLIN)).collect();
    for _ in 0..3 {
        assert_eq!(one.submit(polls(3)), 2, "of three, in one context");
        assert_eq!(one.submit(polls(1)), EAGAIN);
        assert_eq!(other.submit(polls(2)), 1, "of two, in the process");
        assert_eq!(other.submit(polls(1)), EAGAIN);
        writer.write_all(b"x").unwrap();
        assert_eq!(one.reap(2, 8, None).expect("io_getevents").len(), 2);
        assert_eq!(other.reap(1, 8, None).expect("io_getevents").len(), 1);
        // A request that ends inside io_submit does not count.
        assert_eq!(one.submit(polls(5)), 5);
        assert_eq!(one.reap(5, 8, None).expect("io_getevents").len(), 5);
        (&reader).read_exact(&mut [0]).unwrap();
    }
    assert_eq!((one.destroy(), other.destroy()), (0, 0));
}

fn destroy_ends_polls() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let context = Context::new(8).expect("io_setup");
    assert_eq!(context.submit(vec![Request::poll(reader.as_fd(), libc::POLLIN)]), 1);
    assert_eq!(context.destroy(), 0);
}

/// When a context is destroyed, io_getevents fails with EINVAL in threads that wait for its events.
fn destroy_wakes_waiters() {
    for _ in 0..20 {
        let context = Arc::new(Context::new(8).expect("io_setup"));
        let wait = |context: &Arc<Context>| {
            let context = context.clone();
            spawn_until_asleep(move || context.reap(1, 1, None).map(|done| done.len())).0
        };
        let waiters = [wait(&context), wait(&context)];
        assert_eq!(context.destroy(), 0);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(EINVAL));
        }
    }
}

fn requests_outlive_their_thread(path: &Path) {
    let file = uncached(path, 32);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let context = Context::new(64).expect("io_setup");
    let mut requests: Vec<Request> = (0..32).map(|block| read_block(&file, block)).collect();
    requests.push(Request::poll(reader.as_fd(), libc::POLLIN));
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(context.submit(requests), 33));
    });
    for done in context.reap_all(32) {
        assert_eq!(done.res, BLOCK as i64, "read {}", done.tag);
        assert!(done.request.bytes().iter().all(|byte| u64::from(*byte) == done.tag));
    }
    writer.write_all(b"x").unwrap();
    assert_eq!(readiness(&context), libc::POLLIN);
}

/// The test checks the file.
fn exit_right_after_submit(path: &Path, way: &str) {
    let context = submit_fill(path);
    match way {
        "exit" => std::process::exit(0),
        // SAFETY: ends the process.
        "_exit" => unsafe { libc::_exit(0) },
        "return" => std::mem::forget(context),
        "atexit" => {
            assert!(IN_HANDLER.set(context).is_ok());
            // SAFETY: the handler is a plain function of this program.
            assert_eq!(unsafe { libc::atexit(reap_in_handler) }, 0);
        }
        other => panic!("unknown way {other}"),
    }
}

static IN_HANDLER: OnceLock<Context> = OnceLock::new();

/// Runs in exit(3), after the C library has run the destructors of the main thread's thread-local
/// variables.
extern "C" fn reap_in_handler() {
    let context = IN_HANDLER.get().unwrap();
    assert_eq!(context.reap_all(64).len(), 64);
    assert_eq!(context.destroy(), 0);
}

fn submit_fill(path: &Path) -> Context {
    let file = open(path);
    let context = Context::new(64).expect("io_setup");
    let write = |block: usize| {
        let bytes = vec![block as u8; BLOCK * 16];
        Request::write(file.as_fd(), &bytes, (block * bytes.len()) as u64)
    };
    assert_eq!(context.submit((0..64).map(write).collect()), 64);
    context
}

fn fork_leaves_the_context_to_the_parent(path: &Path) {
    let file = uncached(path, 32);
    let context = Context::new(64).expect("io_setup");
    assert_eq!(context.submit((0..16).map(|block| read_block(&file, block)).collect()), 16);
    // SAFETY: the child has one thread, calls what the parent could, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let passed = std::panic::catch_unwind(|| in_child(&context, &file)).is_ok();
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!passed)) };
    }
    assert_eq!(context.submit_tagged(vec![(16, read_block(&file, 16))]), 1);
    for done in context.reap_all(17) {
        assert!(done.request.bytes().iter().all(|byte| u64::from(*byte) == done.tag));
    }
    let mut status = 0;
    // SAFETY: our child, a live integer.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "waitpid");
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "child: {status:#x}");
    assert_eq!(context.run(vec![read_block(&file, 3)])[0].res, BLOCK as i64, "the parent works on");
}

fn in_child(parents: &Context, file: &File) {
    assert_eq!(parents.submit(vec![read_block(file, 0)]), EINVAL, "io_submit");
    // libaio looks at the ring first. If the ring has no events and the time limit is zero, libaio
    // makes no system call.
    let looked = parents.reap(0, 4, Some(Duration::ZERO)).map(|it| it.len());
    assert!(matches!(looked, Ok(0) | Err(EINVAL)), "zero timeout: {looked:?}");
    let limit = Some(Duration::from_millis(1));
    assert_eq!(parents.reap(1, 4, limit).err(), Some(EINVAL), "io_getevents");
    assert_eq!(parents.destroy(), EINVAL, "io_destroy");
    let own = Context::new(16).expect("io_setup in the child");
    for done in own.run((0..16).map(|block| read_block(file, block)).collect()) {
        assert_eq!(done.res, BLOCK as i64, "a read of the child");
        assert!(done.request.bytes().iter().all(|byte| u64::from(*byte) == done.tag));
    }
    assert_eq!(own.destroy(), 0, "the child's own io_destroy");
}

fn exec_right_after_submit(path: &Path) {
    let context = submit_fill(path);
    let me = std::env::current_exe().unwrap();
    let error = Command::new(me).arg("executed").arg(path).exec();
    drop(context);
    panic!("exec: {error}");
}

/// The executed program finds the data in the file, has inherited no descriptor of the library or
/// of this file, and can use AIO.
fn executed(path: &Path) {
    let open_files = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open_files.filter_map(|it| std::fs::read_link(it.unwrap().path()).ok());
    let anonymous = |target: &std::path::PathBuf| {
        let target = target.to_string_lossy().into_owned();
        target.starts_with("anon_inode:") || target == path.to_string_lossy()
    };
    let left: Vec<_> = targets.filter(anonymous).collect();
    assert!(left.is_empty(), "inherited: {left:?}");
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len(), 64 * 16 * BLOCK);
    let wrong = (0..64).find(|block| bytes[block * 16 * BLOCK] != *block as u8);
    assert_eq!(wrong, None, "a block that was submitted before exec");
    let context = Context::new(8).expect("io_setup after exec");
    assert_eq!(context.run(vec![read_block(&open(path), 3)])[0].res, BLOCK as i64);
}

fn an_idle_wait_is_one_sleep() {
    const LOOKS_MAX: u64 = 10;
    let sleeps = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("a count").trim().parse::<u64>().expect("a number")
    };
    let (reader, _writer) = std::io::pipe().unwrap();
    let context = Context::new(8).expect("io_setup");
    assert_eq!(context.submit(vec![Request::poll(reader.as_fd(), libc::POLLIN)]), 1);
    let before = sleeps();
    let taken = context.reap(1, 1, Some(Duration::from_millis(500)));
    assert_eq!(taken.map(|it| it.len()), Ok(0));
    let slept = sleeps() - before;
    assert!(slept < LOOKS_MAX, "woken {slept} times for nothing");
}

/// A thread leaves its process's descriptor table, waits for events that the engine's threads
/// deliver, and ends. Then the kernel closes the files that only this thread had open.
fn a_table_of_descriptors_ends_with_its_thread(path: &Path) {
    const ROUNDS: usize = 10;
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (silent, _keeps) = std::io::pipe().unwrap();
    let (file, context) = (open(path), Arc::new(Context::new(8).expect("io_setup")));
    let (left, has_left) = std::sync::mpsc::channel();
    let (taken, has_taken) = std::sync::mpsc::channel();
    let waiter = context.clone();
    let thread = thread::spawn(move || {
        // SAFETY: plain numbers; only this thread's table changes.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        left.send(()).unwrap();
        assert_eq!(waiter.submit(vec![Request::poll(silent.as_fd(), libc::POLLIN)]), 1);
        for _ in 0..ROUNDS {
            assert_eq!(waiter.reap_all(1).len(), 1);
            taken.send(()).unwrap();
        }
    });
    has_left.recv().unwrap();
    drop(writer); // in the table of the process
    for _ in 0..ROUNDS {
        assert_eq!(context.submit(vec![Request::fsync(file.as_fd())]), 1);
        has_taken.recv().unwrap();
    }
    thread.join().unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the end of the stream");
}

/// The result of a poll is the mask of ready events: if the pipe is readable already, becomes
/// readable later, or hangs up.
fn poll_reports_readiness() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let context = Context::new(8).expect("io_setup");
    let poll = || vec![Request::poll(reader.as_fd(), libc::POLLIN)];
    for round in 0..200 {
        assert_eq!(context.submit(poll()), 1);
        let early = context.reap(0, 1, Some(Duration::ZERO)).unwrap();
        assert!(early.is_empty(), "round {round}: nothing to read yet: {early:?}");
        writer.write_all(b"x").unwrap();
        assert_eq!(readiness(&context), libc::POLLIN);
        assert_eq!(context.submit(poll()), 1);
        assert_eq!(readiness(&context), libc::POLLIN, "ready at once");
        (&reader).read_exact(&mut [0]).unwrap();
    }
    assert_eq!(context.submit(poll()), 1);
    drop(writer);
    assert_eq!(readiness(&context), libc::POLLHUP);
}

/// Reaps one completion of a poll and returns its mask. Leaves out bits such as `POLLRDNORM`: the
/// kernel adds them if the file becomes ready after io_submit.
fn readiness(context: &Context) -> i16 {
    context.reap_all(1)[0].res as i16 & (libc::POLLIN | libc::POLLOUT | libc::POLLHUP)
}

/// `io_cancel` only begins the cancellation: the event arrives through the ring, exactly once.
fn cancelled_polls_still_complete() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let context = Context::new(8).expect("io_setup");
    for round in 0..200 {
        assert_eq!(context.submit(vec![Request::poll(reader.as_fd(), libc::POLLIN)]), 1);
        assert_eq!(context.cancel(0), -libc::EINPROGRESS, "round {round}");
        assert_eq!(context.reap_all(1)[0].res, 0, "round {round}");
    }
    let more = context.reap(0, 8, Some(Duration::ZERO)).unwrap();
    assert!(more.is_empty(), "a completion too many");
}

/// io_cancel ends a read that waits for data from a pipe, and the read takes no bytes that arrive
/// later. (The kernel's AIO would wait for the data inside `io_submit`.)
fn cancelled_reads_of_streams_complete_once() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let context = Context::new(8).expect("io_setup");
    for round in 0..200 {
        assert_eq!(context.submit(vec![Request::read(reader.as_fd(), 4, 0)]), 1);
        assert_eq!(context.cancel(0), -libc::EINPROGRESS, "round {round}");
        assert_eq!(context.cancel(0), EINVAL, "twice, round {round}");
        assert_eq!(context.reap_all(1)[0].res, i64::from(-libc::ECANCELED), "round {round}");
        writer.write_all(b"here").unwrap();
        let mut seen = [0; 4];
        (&reader).read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"here");
    }
    assert_eq!(context.submit(vec![Request::read(reader.as_fd(), 4, 0)]), 1);
    assert_eq!(context.destroy(), 0, "what waits for ever does not hold it up");
}

/// Reads of a pipe complete in the order of submission. When the writer closes the pipe, the rest
/// completes with 0.
fn reads_of_a_stream_take_their_turns() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let context = Context::new(64).expect("io_setup");
    let read = || Request::read(reader.as_fd(), 1, 0);
    assert_eq!(context.submit((0..40).map(|_| read()).collect()), 40);
    for byte in 0..30 {
        writer.write_all(&[byte]).unwrap();
    }
    for done in context.reap_all(30) {
        assert_eq!((done.res, done.request.bytes()), (1, &[done.tag as u8][..]));
    }
    drop(writer);
    assert!(context.reap_all(10).iter().all(|done| done.res == 0), "the end of the stream");
}

fn an_empty_pipe_does_not_delay_others() {
    let (silent, _kept) = std::io::pipe().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let context = Context::new(8).expect("io_setup");
    let pending = Request::poll(silent.as_fd(), libc::POLLIN);
    assert_eq!(context.submit_tagged(vec![(1000, pending)]), 1);
    for _ in 0..50 {
        writer.write_all(b"full").unwrap();
        let done = context.run(vec![Request::read(reader.as_fd(), 4, 0)]);
        assert_eq!((done[0].res, done[0].request.bytes()), (4, &b"full"[..]));
        let written = context.run(vec![Request::write(writer.as_fd(), b"more", 0)]);
        assert_eq!(written[0].res, 4);
        (&reader).read_exact(&mut [0; 4]).unwrap();
    }
    assert_eq!(context.cancel(1000), -libc::EINPROGRESS);
    assert_eq!(context.reap_all(1)[0].tag, 1000);
}

/// Four threads submit, three reap: exactly one reaper gets each event.
fn many_threads_share_a_context(path: &Path) {
    const EACH: usize = 1500;
    let file = uncached(path, 64);
    let context = Context::new(256).expect("io_setup");
    let (seen, left) = (AtomicU32::new(0), AtomicU32::new(4 * EACH as u32));
    thread::scope(|scope| {
        for submitter in 0..4 {
            let (context, file) = (&context, &file);
            scope.spawn(move || {
                for round in 0..EACH {
                    let block = (submitter * 17 + round) % 64;
                    let tagged = || vec![(block as u64, read_block(file, block))];
                    wait_until(|| match context.submit_tagged(tagged()) {
                        1 => true,
                        full => {
                            assert_eq!(full, -libc::EAGAIN, "io_submit");
                            false
                        }
                    });
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| {
                while left.load(Ordering::Acquire) > 0 {
                    // The wait has a time limit, because another reaper may take the last event.
                    let done = context.reap(1, 16, Some(Duration::from_millis(20))).unwrap();
                    for done in &done {
                        assert_eq!(done.res, BLOCK as i64);
                        let right = |byte: &u8| u64::from(*byte) == done.tag;
                        assert!(done.request.bytes().iter().all(right), "block {}", done.tag);
                    }
                    seen.fetch_add(done.len() as u32, Ordering::Relaxed);
                    left.fetch_sub(done.len() as u32, Ordering::Release);
                }
            });
        }
    });
    assert_eq!(seen.into_inner(), 4 * EACH as u32);
}

fn every_waiter_is_woken(path: &Path) {
    let file = open(path);
    for _ in 0..20 {
        let context = Arc::new(Context::new(32).expect("io_setup"));
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let context = context.clone();
                spawn_until_asleep(move || context.reap(1, 1, None).map(|done| done.len())).0
            })
            .collect();
        let write = |block: u64| Request::write(file.as_fd(), &[1; BLOCK], block * BLOCK as u64);
        assert_eq!(context.submit((0..4).map(write).collect()), 4);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(1));
        }
    }
}
