//! Tests of the thread backend alone: lanes, workers, credentials, delivery, shutdown.

use nowait_block::{
    Bio, BioOp, BlockBackend, Completion, Lane, Segments,
    backends::threads::{Deliver, Threads, ThreadsConfig, system_calls},
    bio::Descriptor,
    skip::note_skip,
};
use nowait_sys::{
    Errno,
    cred::Credentials,
    fdtable,
    file::{IoVec, rwf},
    thread,
    time::Deadline,
};
use proptest::prelude::*;
use std::{
    io::{PipeReader, PipeWriter, Write, pipe},
    os::{fd::AsRawFd, unix::fs::FileExt},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

fn pool(max_workers: usize) -> Threads {
    Threads::new(ThreadsConfig { max_workers, ..ThreadsConfig::default() }).unwrap()
}

fn one(bytes: &mut [u8]) -> Segments {
    Segments::One(IoVec { base: bytes.as_mut_ptr(), len: bytes.len() })
}

fn bio(op: BioOp, fd: &impl AsRawFd, segments: Segments, offset: i64, token: u64) -> Bio {
    // SAFETY: the tests keep their buffers until they have reaped the bios, or have ended the pool.
    unsafe { Bio::new(op, fd.as_raw_fd(), segments, offset, token) }
}

fn start(backend: &Threads, bio: Bio) {
    assert!(backend.queue(bio).is_ok());
    backend.commit();
}

fn reap(backend: &Threads, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        let missing = count - done.len();
        backend.reap(&mut done, missing, Deadline::NEVER).unwrap();
    }
    done
}

#[derive(Debug)]
struct Started(i32, Mutex<mpsc::Sender<()>>);

impl Descriptor for Started {
    fn number(&self) -> Result<i32, Errno> {
        let _ = self.1.lock().unwrap().send(());
        Ok(self.0)
    }
}

/// Occupies a worker until the test writes to the returned writer, or drops it.
fn block_a_worker(backend: &Threads, buffer: &mut [u8], token: u64) -> (PipeReader, PipeWriter) {
    let ((reader, writer), (sender, started)) = (pipe().unwrap(), mpsc::channel());
    let mut read = bio(BioOp::Read, &reader, one(buffer), -1, token);
    read.file = Some(Arc::new(Started(reader.as_raw_fd(), Mutex::new(sender))));
    start(backend, read);
    started.recv().unwrap();
    (reader, writer)
}

#[test]
fn bios_of_a_lane_run_in_order() {
    let (backend, file, lane) = (pool(8), tempfile::tempfile().unwrap(), Lane::new());
    let mut values: Vec<[u8; 512]> = (0..1000u32).map(|i| [i as u8; 512]).collect();
    for (token, value) in values.iter_mut().enumerate() {
        let mut bio = bio(BioOp::Write, &file, one(value), 0, token as u64);
        bio.hints.lane = Some(lane.clone());
        assert!(backend.queue(bio).is_ok());
        if token % 17 == 0 {
            backend.commit();
        }
    }
    backend.commit();
    let tokens: Vec<u64> = reap(&backend, 1000).iter().map(|done| done.token).collect();
    assert!(tokens.iter().copied().eq(0..1000));
    let mut last = [0u8; 512];
    file.read_exact_at(&mut last, 0).unwrap();
    assert_eq!(last, [999u32 as u8; 512]);
}

#[test]
fn what_waits_is_cancelled_wherever_it_waits_and_the_rest_keeps_its_order() {
    const COUNT: u64 = 3000;
    let (backend, file, lanes) =
        (pool(1), tempfile::tempfile().unwrap(), [(); 2].map(|()| Lane::new()));
    let (mut byte, mut value) = ([0u8; 1], [7u8; 1]);
    let (_reader, writer) = block_a_worker(&backend, &mut byte, 0);
    let way = |token: u64| (token % 3) as usize;
    for token in 1..=COUNT {
        let mut bio = bio(BioOp::Write, &file, one(&mut value), token as i64, token);
        bio.hints.lane = lanes.get(way(token)).cloned();
        bio.flow = 100 + token % 7;
        start(&backend, bio);
    }
    let is_cancelled = |token: u64| token.is_multiple_of(4);
    for token in (1..=COUNT).rev().filter(|token| is_cancelled(*token)) {
        backend.cancel(token);
        backend.cancel(token); // finds nothing
    }
    backend.cancel(0); // a worker runs it
    drop(writer);
    let done = reap(&backend, COUNT as usize + 1);
    for Completion { token, result } in &done {
        let expected = match token {
            0 => Ok(0),
            token if is_cancelled(*token) => Err(Errno::CANCELED),
            _ => Ok(1),
        };
        assert_eq!(*result, expected, "{token}");
    }
    let ran = |lane| done.iter().map(|it| it.token).filter(move |token| way(*token) == lane);
    for lane in 0..lanes.len() {
        let ran: Vec<u64> = ran(lane).filter(|token| *token > 0 && !is_cancelled(*token)).collect();
        assert!(ran.is_sorted());
    }
    let mut tokens: Vec<u64> = done.iter().map(|it| it.token).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..=COUNT), "each once");
}

#[test]
fn blocked_lane_blocks_no_other() {
    let (backend, file, lane) = (pool(4), tempfile::tempfile().unwrap(), Lane::new());
    let (reader, mut writer) = pipe().unwrap();
    let (mut first, mut second, mut third) = ([0u8; 1], [0u8; 1], [0u8; 1]);
    for (buffer, token) in [(&mut first, 1), (&mut second, 2)] {
        let mut bio = bio(BioOp::Read, &reader, one(buffer), -1, token);
        bio.hints.lane = Some(lane.clone());
        start(&backend, bio);
    }
    start(&backend, bio(BioOp::Read, &file, one(&mut third), 0, 3));
    assert_eq!(reap(&backend, 1)[0].token, 3);
    writer.write_all(b"ab").unwrap();
    let tokens: Vec<u64> = reap(&backend, 2).iter().map(|done| done.token).collect();
    assert_eq!((tokens, first, second), (vec![1, 2], *b"a", *b"b"));
}

#[test]
fn a_blocked_worker_always_leaves_another_behind() {
    let (backend, file) = (pool(8), tempfile::tempfile().unwrap());
    let (mut buffers, mut byte, mut pipes) = (vec![[0u8; 1]; 7], [0u8; 1], Vec::new());
    for (token, buffer) in buffers.iter_mut().enumerate() {
        pipes.push(block_a_worker(&backend, buffer, token as u64));
        start(&backend, bio(BioOp::Read, &file, one(&mut byte), 0, 100));
        assert_eq!(reap(&backend, 1)[0].token, 100, "with {} blocked", token + 1);
    }
    drop(pipes);
    assert_eq!(reap(&backend, 7).len(), 7);
}

#[test]
fn there_are_never_more_workers_than_allowed() {
    let (backend, file) = (pool(3), tempfile::tempfile().unwrap());
    let (mut buffers, mut bytes, mut pipes) = (vec![[0u8; 1]; 3], [0u8; 8], Vec::new());
    for (token, buffer) in buffers.iter_mut().enumerate() {
        pipes.push(block_a_worker(&backend, buffer, token as u64));
    }
    for token in 10..50 {
        start(&backend, bio(BioOp::Read, &file, one(&mut bytes), 0, token));
        assert_eq!(backend.workers(), 3, "all of them are blocked");
    }
    for pipe in pipes {
        drop(pipe.1);
        assert!(backend.workers() <= 3);
    }
    assert_eq!((reap(&backend, 43).len(), backend.in_flight()), (43, 0));
}

#[test]
fn what_has_not_started_can_be_cancelled() {
    let (backend, file, lane) = (pool(1), tempfile::tempfile().unwrap(), Lane::new());
    let (mut buffer, mut byte) = ([0u8; 1], [0u8; 1]);
    let pipe = block_a_worker(&backend, &mut buffer, 1);
    start(&backend, bio(BioOp::Read, &file, one(&mut byte), 0, 2));
    let mut in_lane = bio(BioOp::Read, &file, one(&mut byte), 0, 3);
    in_lane.hints.lane = Some(lane);
    start(&backend, in_lane);
    assert!(backend.queue(bio(BioOp::Read, &file, one(&mut byte), 0, 4)).is_ok());
    for token in [2, 3, 4] {
        backend.cancel(token);
        let done = reap(&backend, 1);
        assert_eq!(done, [Completion { token, result: Err(Errno::CANCELED) }]);
    }
    backend.cancel(1); // runs: stays
    drop(pipe.1);
    assert_eq!(reap(&backend, 1), [Completion { token: 1, result: Ok(0) }]);
}

#[derive(Debug, Default)]
struct Witness(Mutex<Vec<Credentials>>);

impl Descriptor for Witness {
    fn number(&self) -> Result<i32, Errno> {
        self.0.lock().unwrap().push(Credentials::current()?);
        Ok(-1)
    }
}

#[test]
fn workers_act_with_the_rights_of_the_bio_and_give_them_back() {
    // SAFETY: geteuid takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return note_skip("workers_act_with_the_rights_of_the_bio", "needs root");
    }
    let own = Credentials::current().unwrap();
    let other = std::thread::spawn(|| {
        // SAFETY: setfsuid takes no memory, and changes only this thread.
        unsafe { libc::syscall(libc::SYS_setfsuid, 65_534) };
        Credentials::current().unwrap()
    });
    let other = other.join().unwrap();
    assert_ne!(own, other);
    let (backend, witness) = (pool(1), Arc::new(Witness::default()));
    for credentials in [None, Some(other.clone()), Some(own.clone()), Some(other.clone()), None] {
        let mut bio = bio(BioOp::Fsync, &0, Segments::NONE, 0, 1);
        bio.file = Some(witness.clone());
        bio.hints.credentials = credentials.map(Arc::new);
        start(&backend, bio);
        assert_eq!(reap(&backend, 1)[0].result, Err(Errno::BADF));
    }
    let seen = witness.0.lock().unwrap();
    assert_eq!(*seen, [own.clone(), other.clone(), own.clone(), other, own]);
}

fn name_of_thread() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    name.trim_end().to_owned()
}

#[test]
fn completions_are_delivered_on_the_worker_after_the_hook_has_run() {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let deliver = Deliver::Call(Arc::new(move |done: &mut Vec<Completion>| {
        let name = name_of_thread();
        let _ = sender.lock().unwrap().send((name, core::mem::take(done)));
    }));
    let (hook, hooked) = mpsc::channel();
    let first = Box::new(move || {
        let _ = hook.send(name_of_thread());
    });
    let (first, name) = (Some(first as Box<_>), "test-w".to_owned());
    let config = ThreadsConfig { max_workers: 1, deliver, first, name, ..ThreadsConfig::default() };
    let backend = Threads::new(config).unwrap();
    start(&backend, bio(BioOp::Fsync, &-1, Segments::NONE, 0, 5));
    let (name, done) = receiver.recv().unwrap();
    assert_eq!(hooked.try_recv().unwrap(), "test-w0");
    assert_eq!((name.as_str(), done[0].token), ("test-w0", 5));
    assert_eq!(backend.in_flight(), 0);
}

#[test]
fn a_pool_that_is_woken_calls_its_receiver() {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let deliver = Deliver::Call(Arc::new(move |done: &mut Vec<Completion>| {
        let _ = sender.lock().unwrap().send(done.len());
    }));
    let backend = Threads::new(ThreadsConfig { deliver, ..ThreadsConfig::default() }).unwrap();
    for _ in 0..3 {
        backend.wake();
        assert_eq!(receiver.recv(), Ok(0));
    }
}

#[test]
fn workers_share_the_table_that_the_hook_made() {
    let (near, far) = fdtable::channel().unwrap();
    let (made, result) = mpsc::channel();
    let first = Box::new(move || {
        let _ = made.send(fdtable::make_private(far.into_raw()));
    });
    let config = ThreadsConfig { first: Some(first), ..ThreadsConfig::default() };
    let backend = Threads::new(config).unwrap();
    if let Err(errno) = result.recv().unwrap() {
        return note_skip("workers_share_the_table_that_the_hook_made", &errno.to_string());
    }
    let file = tempfile::tempfile().unwrap();
    let (mut buffers, mut pipes) = (vec![[0u8; 1]; 20], Vec::new());
    for (token, buffer) in buffers.iter_mut().enumerate() {
        let lookup = bio(BioOp::Read, &file, one(buffer), 0, token as u64);
        assert!(backend.queue(lookup).is_ok());
        pipes.push(pipe().unwrap());
    }
    backend.commit();
    for done in reap(&backend, 20) {
        assert_eq!(done.result, Err(Errno::BADF), "not open in the workers' table");
    }
    drop(near);
}

#[test]
fn shutdown_completes_what_has_not_started() {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let deliver = Deliver::Call(Arc::new(move |done: &mut Vec<Completion>| {
        let sender = sender.lock().unwrap();
        for one in done.drain(..) {
            let _ = sender.send(one);
        }
    }));
    let config = ThreadsConfig { max_workers: 1, deliver, ..ThreadsConfig::default() };
    let (backend, lane) = (Threads::new(config).unwrap(), Lane::new());
    let (mut buffer, mut byte) = ([0u8; 1], [0u8; 1]);
    let (reader, writer) = block_a_worker(&backend, &mut buffer, 0);
    for token in 1..10 {
        let mut bio = bio(BioOp::Read, &reader, one(&mut byte), 0, token);
        bio.hints.lane = token.is_multiple_of(2).then(|| lane.clone());
        assert!(backend.queue(bio).is_ok());
        if token == 5 {
            backend.commit();
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| backend.shutdown());
        // The shutdown has begun when the pool accepts no more bios.
        while backend.queue(bio(BioOp::Fsync, &reader, Segments::NONE, 0, 99)).is_ok() {
            std::thread::yield_now();
        }
        drop(writer);
    });
    drop(backend);
    let mut done: Vec<Completion> = receiver.iter().filter(|done| done.token != 99).collect();
    done.sort_by_key(|done| done.token);
    assert_eq!((done.len(), done[0].result), (10, Ok(0)));
    assert!(done[1..].iter().all(|done| done.result == Err(Errno::CANCELED)), "{done:?}");
}

#[test]
fn dropping_the_pool_ends_its_polls() {
    let (backend, (reader, _writer)) = (pool(2), pipe().unwrap());
    start(&backend, bio(BioOp::Poll(1), &reader, Segments::NONE, 0, 1));
    drop(backend);
}

#[test]
fn priority_and_announcement_do_not_change_the_result() {
    const BEST_EFFORT_7: u16 = 2 << 13 | 7;
    const NO_SUCH_CLASS: u16 = 7 << 13;
    let (backend, file) = (pool(2), tempfile::tempfile().unwrap());
    file.write_all_at(&vec![7; 20_000], 0).unwrap();
    let mut buffer = vec![0; 30_000];
    for (priority, expected) in [(BEST_EFFORT_7, Ok(20_000)), (NO_SUCH_CLASS, Err(Errno::INVAL))] {
        let mut bio = bio(BioOp::Read, &file, one(&mut buffer), 0, 1);
        (bio.priority, bio.hints.upfront) = (priority, true);
        start(&backend, bio);
        assert_eq!(reap(&backend, 1)[0].result, expected);
    }
}

#[test]
fn a_filter_that_refuses_priorities_fails_no_request() {
    let confined = || {
        refuse(libc::SYS_ioprio_set); // also for the pool's workers
        let real_time = 1 << 13;
        assert_eq!(thread::check_io_priority(real_time), Ok(()));
        let (backend, file) = (pool(1), tempfile::tempfile().unwrap());
        let mut bytes = [7u8; 4096];
        let write = bio(BioOp::Write, &file, one(&mut bytes), 0, 1);
        start(&backend, Bio { priority: 2 << 13 | 7, ..write });
        assert_eq!(reap(&backend, 1)[0].result, Ok(4096));
        assert_eq!(file.metadata().unwrap().len(), 4096);
    };
    std::thread::spawn(confined).join().unwrap();
}

/// Makes a system call fail with EPERM, on this thread and the threads that it starts.
fn refuse(call: libc::c_long) {
    let step = |code: u32, k, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers; the kernel only reads the live filter.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn flags_reach_the_system() {
    let (backend, file) = (pool(2), tempfile::tempfile().unwrap());
    let mut bytes = [1u8; 16];
    let mut append = bio(BioOp::Write, &file, one(&mut bytes), 0, 1);
    append.rw_flags = rwf::APPEND;
    for size in [16, 32] {
        start(&backend, append.clone());
        assert_eq!(reap(&backend, 1)[0].result, Ok(16));
        assert_eq!(file.metadata().unwrap().len(), size);
    }
    append.rw_flags = 1 << 30;
    start(&backend, append);
    assert_eq!(reap(&backend, 1)[0].result, Err(Errno::OPNOTSUPP));
}

#[test]
fn streams_are_asked_once() {
    let (backend, (reader, mut writer)) = (pool(2), pipe().unwrap());
    writer.write_all(b"abc").unwrap();
    let mut buffer = [0u8; 16];
    start(&backend, bio(BioOp::Read, &reader, one(&mut buffer), -1, 1));
    assert_eq!(reap(&backend, 1)[0].result, Ok(3), "and not: waits for the other 13");
}

thread_local! {
    static KNOWN: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

#[test]
fn every_thread_of_the_pool_is_made_known_before_it_delivers() {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let deliver = Deliver::Call(Arc::new(move |done| {
        let tokens: Vec<u64> = done.drain(..).map(|completion| completion.token).collect();
        sender.lock().unwrap().send((KNOWN.get(), tokens)).unwrap();
    }));
    let each = || KNOWN.set(true);
    let backend =
        Threads::new(ThreadsConfig { deliver, each, ..ThreadsConfig::default() }).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    start(&backend, bio(BioOp::Poll(1), &reader, Segments::NONE, 0, 1));
    start(&backend, bio(BioOp::Fsync, &-1, Segments::NONE, 0, 2));
    assert_eq!(receiver.recv().unwrap(), (true, vec![2]));
    std::io::Write::write_all(&mut writer, b"x").unwrap();
    assert_eq!(receiver.recv().unwrap(), (true, vec![1]), "the watcher's");
}

#[derive(Debug)]
struct Broken;

impl Descriptor for Broken {
    fn number(&self) -> Result<i32, Errno> {
        panic!("broken")
    }
}

#[test]
fn a_bio_that_panics_ends_with_eio_and_its_worker_goes_on() {
    let (told, tells) = mpsc::channel();
    let failed = Arc::new(move |cause: &(dyn core::any::Any + Send)| {
        told.send(cause.downcast_ref::<&str>().copied()).unwrap();
    });
    let config = ThreadsConfig { max_workers: 1, failed, ..ThreadsConfig::default() };
    let backend = Threads::new(config).unwrap();
    let file = tempfile::tempfile().unwrap();
    let (lane, none) = (Lane::new(), || Segments::NONE);
    for lane in [None, Some(lane)] {
        for op in [BioOp::Fsync, BioOp::Poll(1)] {
            let mut broken = bio(op, &file, none(), 0, 1);
            broken.file = Some(Arc::new(Broken));
            broken.hints.lane.clone_from(&lane);
            start(&backend, broken);
            assert_eq!(reap(&backend, 1), [Completion { token: 1, result: Err(Errno::IO) }]);
            assert_eq!(tells.recv().unwrap(), Some("broken"));
            start(&backend, bio(BioOp::Fsync, &file, none(), 0, 2));
            assert_eq!(reap(&backend, 1), [Completion { token: 2, result: Ok(0) }]);
        }
    }
}

#[test]
fn a_receiver_that_panics_gets_the_rest_again() {
    let (sender, receiver) = mpsc::channel();
    let deliver = Deliver::Call(Arc::new(move |done: &mut Vec<Completion>| {
        let completion = done.pop().unwrap();
        sender.send(completion.token).unwrap();
        assert!(completion.token != 0, "refused");
    }));
    let config = ThreadsConfig { max_workers: 1, deliver, ..ThreadsConfig::default() };
    let backend = Threads::new(config).unwrap();
    let mut completions: Vec<_> = (0..3).map(|token| Completion { token, result: Ok(0) }).collect();
    backend.deliver(&mut completions);
    let mut seen: Vec<u64> = receiver.iter().take(3).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
}

/// The offset and length of each call of `carry` that is not a read.
type Calls = Arc<Mutex<Vec<(i64, usize)>>>;

/// A write stops at `limit`, as at the end of a disk or at RLIMIT_FSIZE.
fn pool_of_a_small_file(limit: usize) -> (Threads, Calls) {
    let calls = Calls::default();
    let noted = calls.clone();
    let carry = move |bio: &Bio| {
        if bio.op == BioOp::Read {
            return system_calls(bio); // occupies the worker
        }
        noted.lock().unwrap().push((bio.offset, bio.segments.len()));
        match limit.saturating_sub(bio.offset as usize).min(bio.segments.len()) {
            0 => Err(Errno::NOSPC),
            written => Ok(written),
        }
    };
    let config =
        ThreadsConfig { max_workers: 1, carry: Arc::new(carry), ..ThreadsConfig::default() };
    (Threads::new(config).unwrap(), calls)
}

fn run_in_a_lane(backend: &Threads, bios: Vec<Bio>) -> Vec<Result<u32, Errno>> {
    let (mut buffer, lane, count) = ([0; 8], Lane::new(), bios.len());
    let (_reader, writer) = block_a_worker(backend, &mut buffer, u64::MAX);
    for (token, mut bio) in bios.into_iter().enumerate() {
        bio.token = token as u64;
        bio.hints.lane = Some(lane.clone());
        assert!(backend.queue(bio).is_ok());
    }
    backend.commit();
    drop(writer);
    let mut done = reap(backend, count + 1);
    assert_eq!(backend.in_flight(), 0);
    done.sort_by_key(|completion| completion.token);
    done.into_iter().take(count).map(|completion| completion.result).collect()
}

fn joining(memory: &mut [u8], offset: i64) -> Bio {
    let mut write = bio(BioOp::Write, &std::io::stdout(), one(memory), offset, 0);
    write.hints.joins = true;
    write
}

#[test]
fn writes_that_adjoin_in_a_lane_are_one_call() {
    let (backend, calls) = pool_of_a_small_file(1 << 30);
    let mut memory = vec![0; 300 << 10];
    let mut write = |offset, len| joining(&mut memory[..len], offset);
    let mut bios: Vec<Bio> = (0..8).map(|index| write(index * 4096, 4096)).collect();
    bios.push(write(9 * 4096, 4096)); // behind a gap
    bios.push(Bio { rw_flags: rwf::DSYNC, ..write(10 * 4096, 4096) });
    let mut apart = write(11 * 4096, 4096);
    apart.rw_flags = rwf::DSYNC;
    apart.hints.joins = false;
    bios.push(apart);
    bios.push(Bio { priority: 2 << 13, ..write(12 * 4096, 4096) });
    bios.push(Bio { op: BioOp::Fsync, ..write(13 * 4096, 4096) });
    bios.extend([write(0, 300 << 10), write(300 << 10, 300 << 10), write(600 << 10, 4096)]);
    let ends = run_in_a_lane(&backend, bios);
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    let block = |index: i64| (index * 4096, 4096);
    let mut wanted = vec![(0, 8 * 4096), block(9), block(10), block(11), block(12), block(13)];
    wanted.extend([(0, 300 << 10), (300 << 10, 304 << 10)]);
    assert_eq!(*calls.lock().unwrap(), wanted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Joined or alone, each write has the same result.
    #[test]
    fn a_write_ends_as_it_would_alone(
        writes in prop::collection::vec((0i64..4, 0usize..4), 1..40),
        limit in 0usize..40,
    ) {
        let mut memory = [0; 4 * 512];
        let mut ends = |joins| {
            let (backend, calls) = pool_of_a_small_file(limit * 512 + 100);
            let mut at = 0;
            let make = |(gap, blocks): &(i64, usize)| {
                at += if *gap == 3 { 512 } else { 0 };
                let mut write = joining(&mut memory[..blocks * 512], at);
                at += *blocks as i64 * 512;
                write.hints.joins = joins;
                write
            };
            let bios = writes.iter().map(make).collect();
            let ends = run_in_a_lane(&backend, bios);
            let calls = calls.lock().unwrap().len();
            (ends, calls)
        };
        let ((together, fewer), (alone, calls)) = (ends(true), ends(false));
        prop_assert_eq!(together, alone);
        prop_assert!(calls == writes.len() && fewer <= 2 * calls);
    }
}

/// The kernel reports an earlier failed writeback in this way: one call gets the error, and later
/// calls do not.
#[test]
fn an_error_that_is_told_once_is_that_of_the_first_write() {
    let told = AtomicBool::new(false);
    let carry = move |bio: &Bio| match bio.op {
        BioOp::Read => system_calls(bio), // occupies the worker
        _ if told.swap(true, Ordering::Relaxed) => Ok(bio.segments.len()),
        _ => Err(Errno::IO),
    };
    let config =
        ThreadsConfig { max_workers: 1, carry: Arc::new(carry), ..ThreadsConfig::default() };
    let (backend, mut memory) = (Threads::new(config).unwrap(), [0; 512]);
    let bios = (0..3).map(|index| joining(&mut memory, 512 * index)).collect();
    assert_eq!(run_in_a_lane(&backend, bios), [Err(Errno::IO), Ok(512), Ok(512)]);
}
