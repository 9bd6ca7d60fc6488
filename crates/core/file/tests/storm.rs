//! A storm of cancellations, closes, forks, ends of threads and destructions on the real backends.
//! Each request ends exactly once, the engine writes nothing to a buffer after its event, and each
//! request has done what its result says.
//!
//! `STORM_SEED=17 cargo test -p nowait-file --test storm` repeats the random choices of one run,
//! but not the interleaving of its threads; `STORM_ROUNDS` sets the number of rounds.

mod common;
#[path = "common/history.rs"]
mod history;

use common::*;
use history::{BLOCK, BLOCKS, History, What, byte, initial};
use nowait_block::Segments;
use nowait_cache::SyncLevel;
use nowait_file::{Command, Context, Engine, Kind, UserFile, UserOperation, command::open_for};
use nowait_sys::{
    Errno,
    file::{O_DIRECT, rwf},
    time::Deadline,
};
use std::{
    fs::{File, OpenOptions},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::OpenOptionsExt, net::UnixStream, process::CommandExt},
    },
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

const SLOTS: usize = 96;
const REQUESTS: u64 = 250;
const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;
/// The test writes this byte over a request's buffer when the event has come.
const STAMP: u8 = 0xa5;

const FREE: u32 = 0;
const BUSY: u32 = 1;

struct Slot {
    state: AtomicU32,
    memory: *mut [u8],
    stamped: AtomicBool,
    number: AtomicUsize,
}

// SAFETY: the memory is touched by the thread that took the slot from FREE, and by the engine while
// BUSY.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

impl Slot {
    fn new() -> Slot {
        let whole = leaked(2 * BLOCK, 0);
        let skip = whole.cast::<u8>().align_offset(BLOCK);
        // SAFETY: a block that is aligned lies within two blocks.
        let memory =
            unsafe { core::ptr::slice_from_raw_parts_mut(whole.cast::<u8>().add(skip), BLOCK) };
        let (state, stamped) = (AtomicU32::new(FREE), AtomicBool::new(false));
        Slot { state, memory, stamped, number: AtomicUsize::new(usize::MAX) }
    }

    /// No thread may have written to the memory since the last event.
    fn take(&self) -> bool {
        if self.state.compare_exchange(FREE, BUSY, AcqRel, Acquire).is_err() {
            return false;
        }
        if self.stamped.swap(false, AcqRel) {
            let intact = bytes(self.memory).iter().all(|byte| *byte == STAMP);
            assert!(intact, "written to after the event");
        }
        true
    }

    fn fill(&self, kind: Kind, number: usize) {
        if kind == Kind::Write {
            for index in 0..BLOCK {
                // SAFETY: the slot was taken, and its request is not in flight yet.
                unsafe { self.memory.cast::<u8>().add(index).write(byte(number, index)) };
            }
        }
    }

    fn ended(&self) {
        // SAFETY: between its event and the next request no other thread touches the memory.
        unsafe { self.memory.cast::<u8>().write_bytes(STAMP, BLOCK) };
        self.stamped.store(true, Release);
        assert_eq!(self.state.swap(FREE, AcqRel), BUSY, "an event for nothing, or twice");
    }
}

struct Files {
    ends: Vec<(OwnedFd, OwnedFd)>,
    /// A stream that is made again gets a new number.
    streams: Vec<usize>,
    streams_made: usize,
    all: [File; 3],
}

const NAMES: [&str; 3] = ["plain", "direct", "cached"];
const PLAIN: usize = 0;
const DIRECT: usize = 1;
const CACHED: usize = 2;

impl Files {
    fn new(folder: &std::path::Path) -> Files {
        let open = |file: usize| {
            let path = folder.join(NAMES[file]);
            let content: Vec<u8> = (0..BLOCKS).flat_map(|block| initial(file, block)).collect();
            std::fs::write(&path, content).unwrap();
            let flags = if file == DIRECT { O_DIRECT } else { 0 };
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
        };
        Files {
            ends: (0..4).map(Files::pair).collect(),
            streams: (0..4).collect(),
            streams_made: 4,
            all: [PLAIN, DIRECT, CACHED].map(open),
        }
    }

    fn pair(index: usize) -> (OwnedFd, OwnedFd) {
        if index.is_multiple_of(2) {
            let (reader, writer) = std::io::pipe().unwrap();
            (reader.into(), writer.into())
        } else {
            let (one, other) = UnixStream::pair().unwrap();
            (one.into(), other.into())
        }
    }

    /// Requests on the stream may be in flight.
    fn renew(&mut self, index: usize) {
        self.ends[index] = Files::pair(index);
        self.streams_made += 1;
        self.streams[index] = self.streams_made - 1;
    }

    fn random(&self, prng: &mut Prng, memory: *mut [u8]) -> (Command, What) {
        let index = prng.below(self.ends.len() as u64) as usize;
        let ((reader, writer), stream) = (&self.ends[index], self.streams[index]);
        let len = if prng.one_in(2) { BLOCK } else { 1 + prng.below(BLOCK as u64) as usize };
        let part = core::ptr::slice_from_raw_parts_mut(memory.cast::<u8>(), len);
        let block = prng.below(BLOCKS);
        let of_file = |file: usize, writes, part| {
            let kind = if writes { Kind::Write } else { Kind::Read };
            let command = command(kind, &self.all[file], part, block * BLOCK as u64);
            (command, What::File { file, block, writes })
        };
        let (mut random, what) = match prng.below(12) {
            0..3 => (command(Kind::Read, reader, part, 0), What::Stream { stream, writes: false }),
            3..5 => (command(Kind::Write, writer, part, 0), What::Stream { stream, writes: true }),
            5 => (poll(reader, POLLIN), What::Poll { stream, events: POLLIN }),
            6 => (poll(writer, POLLOUT), What::Poll { stream, events: POLLOUT }),
            7 => of_file(PLAIN, false, part),
            8 => of_file(PLAIN, true, part),
            9 => of_file(DIRECT, prng.one_in(2), memory),
            10 => of_file(CACHED, prng.one_in(2), part),
            _ => {
                let fd = self.all[PLAIN].as_raw_fd();
                let fd = (fd, open_for(fd).unwrap());
                // SAFETY: a sync names no memory.
                (unsafe { Command::new(Kind::Fdatasync, fd, Segments::NONE, 0) }, What::Sync)
            }
        };
        if what == (What::File { file: PLAIN, block, writes: true }) && prng.one_in(3) {
            random.rw_flags = rwf::DSYNC;
        }
        (random, what)
    }
}

struct Storm {
    context: Arc<Context>,
    slots: Vec<Slot>,
    files: Mutex<Files>,
    /// Locked after `files`.
    history: Mutex<History>,
    accepted: AtomicU64,
    ended: AtomicU64,
    submitters: AtomicU32,
}

impl Storm {
    /// The thread lives until all requests have ended, because io_uring gives up a thread's
    /// requests when that thread ends.
    fn submit(&self, prng: &mut Prng) {
        (0..REQUESTS).for_each(|_| self.submit_one(prng));
        self.submitters.fetch_sub(1, AcqRel);
        while !self.is_over() {
            std::thread::yield_now();
        }
    }

    fn is_over(&self) -> bool {
        let all = || self.ended.load(Acquire) == self.accepted.load(Acquire);
        self.submitters.load(Acquire) == 0 && all()
    }

    fn submit_from_short_lives(&self, prng: &mut Prng) {
        for _ in 0..REQUESTS / 10 {
            let prng = &mut *prng;
            let life = || (0..10).for_each(|_| self.submit_one(prng));
            std::thread::scope(|scope| scope.spawn(life).join().unwrap());
        }
        self.submitters.fetch_sub(1, AcqRel);
    }

    fn submit_one(&self, prng: &mut Prng) {
        let name = prng.below(SLOTS as u64);
        let slot = &self.slots[name as usize];
        if !slot.take() {
            return self.cancel(prng);
        }
        // Locked until the request is started, so that no thread closes the descriptor before.
        let files = self.files.lock().unwrap();
        self.accepted.fetch_add(1, AcqRel);
        let (command, what) = files.random(prng, slot.memory);
        let number = self.history.lock().unwrap().submit(name, what, command.len as usize);
        slot.number.store(number, Release);
        slot.fill(command.kind, number);
        match submit(&self.context, name, command) {
            Ok(()) => {}
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                self.accepted.fetch_sub(1, AcqRel);
                slot.ended();
            }
        }
    }

    fn fork(&self) {
        while self.submitters.load(Acquire) > 0 {
            let mut child = std::process::Command::new("/bin/true");
            // SAFETY: the closure does nothing. Its presence makes the child by fork(2), as a copy,
            // and not by vfork.
            unsafe { child.pre_exec(|| Ok(())) };
            assert!(child.status().unwrap().success());
        }
    }

    fn cancel(&self, prng: &mut Prng) {
        self.cancel_named(prng.below(SLOTS as u64));
    }

    fn cancel_named(&self, name: u64) {
        let before = self.history.lock().unwrap().len();
        match self.context.cancel(name) {
            // The slot may have had several requests meanwhile; one of them was cancelled.
            Ok(()) => self.history.lock().unwrap().cancel(name, before),
            Err(errno) => assert_eq!(errno, Errno::INVAL, "cancel"),
        }
    }

    fn disturb(&self, prng: &mut Prng) {
        while self.submitters.load(Acquire) > 0 {
            self.cancel(prng);
            if prng.one_in(20) {
                let mut files = self.files.lock().unwrap();
                // Recorded before the close, because the close may end requests.
                let index = prng.below(4) as usize;
                self.history.lock().unwrap().close(files.streams[index]);
                files.renew(index);
            }
            std::thread::yield_now();
        }
    }

    fn reap(&self) {
        loop {
            let over = self.submitters.load(Acquire) == 0;
            if over {
                (0..SLOTS as u64).for_each(|name| self.cancel_named(name));
            }
            if self.is_over() {
                return;
            }
            // A limit, because another thread may take the last event.
            let limit = Deadline::after_ns(2_000_000);
            let taken = self.context.wait_events(1, 8, limit, None, |_, event| {
                let slot = &self.slots[event.data as usize];
                let number = slot.number.load(Acquire);
                self.history.lock().unwrap().end(number, event.res, bytes(slot.memory));
                slot.ended();
                self.ended.fetch_add(1, AcqRel);
                Ok(())
            });
            assert!(matches!(taken, Ok(_) | Err(Errno::INTR)), "{taken:?}");
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Quiet,
    Restless,
}

fn storm(engine: &Arc<Engine>, seed: u64, times: Times) {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let files = Files::new(folder.path());
    let cached = UserFile::open(engine, files.all[CACHED].as_raw_fd()).unwrap();
    let storm = Storm {
        context: Context::new(engine, 0, 64).unwrap(),
        slots: (0..SLOTS).map(|_| Slot::new()).collect(),
        files: Mutex::new(files),
        history: Mutex::new(History::new(times == Times::Restless)),
        accepted: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        submitters: AtomicU32::new(2),
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let storm = &storm;
            scope.spawn(move || {
                let mut prng = Prng(seed * 10 + thread);
                match times {
                    Times::Quiet => storm.submit(&mut prng),
                    Times::Restless => storm.submit_from_short_lives(&mut prng),
                }
            });
            scope.spawn(move || storm.reap());
        }
        if times == Times::Restless {
            scope.spawn(|| storm.fork());
        }
        scope.spawn(|| storm.disturb(&mut Prng(seed * 10 + 5)));
    });
    let history = storm.history.lock().unwrap();
    let (cancelled, ended) = history.counts();
    assert_eq!(ended as u64, storm.accepted.load(Relaxed), "seed {seed}");
    assert!(0 < cancelled && cancelled < ended, "a storm of both: {cancelled} of {ended}");
    assert_eq!(storm.context.io().outstanding(), 0);
    assert!(!has_event(&storm.context), "an event too many, seed {seed}");
    storm.context.destroy().unwrap();
    // A late write to any buffer would have happened by now, and is found here.
    storm.slots.iter().for_each(|slot| assert!(slot.take()));
    assert_eq!(UserOperation::sync(&cached, SyncLevel::All).run(engine), Ok(0));
    drop(cached);
    history.judge(&NAMES.map(|name| std::fs::read(folder.path().join(name)).unwrap()));
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_request_of_a_storm_ends_once_and_leaves_its_buffer_alone() {
    let first = number("STORM_SEED", 1);
    for seed in first..first + number("STORM_ROUNDS", 2) {
        on_every_backend(|engine| storm(engine, seed, Times::Quiet));
    }
}

/// io_uring gives up a thread's requests when that thread ends, and a fork copies rings, buffers
/// and locks.
#[test]
fn so_it_does_while_the_process_forks_and_its_threads_end() {
    let first = number("STORM_SEED", 1);
    for seed in first..first + number("STORM_ROUNDS", 1) {
        on_every_backend(|engine| storm(engine, seed, Times::Restless));
    }
}

#[test]
fn destroying_a_context_ends_what_waits_and_nothing_is_written_later() {
    on_every_backend(|engine| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for seed in 0..5 {
            let files = Files::new(folder.path());
            let context = Context::new(engine, 0, 64).unwrap();
            let slots: Vec<Slot> = (0..SLOTS).map(|_| Slot::new()).collect();
            let mut prng = Prng(seed);
            for (name, slot) in slots.iter().enumerate() {
                assert!(slot.take());
                let (command, _) = files.random(&mut prng, slot.memory);
                submit(&context, name as u64, command).unwrap();
            }
            context.destroy().unwrap();
            assert_eq!(context.io().outstanding(), 0);
            slots.iter().for_each(Slot::ended);
            std::thread::yield_now();
            slots.iter().for_each(|slot| assert!(slot.take()));
        }
    });
}
