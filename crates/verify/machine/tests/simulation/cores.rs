//! Throughput of 1 to 64 threads with a processor each: on a file of each thread, and on one file
//! of all.
//!
//! docs/internals/locks.md has the table and the command.
#![cfg(observed)]

use crate::{alone, number, spawn};
use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};
use nowait_libaio::exports as libaio;
use nowait_machine::{cores, process};
use nowait_sys::{
    Fd,
    aio::{IoEvent, Iocb, cmd},
    aligned::AlignedBuffer,
    file::{self, IoVec},
    inspect::{self, O_DIRECT, O_RDWR},
    mistake::{self, Mistake},
};
use std::{
    ffi::CString,
    fs::File,
    io::Write,
    sync::{Arc, Barrier},
};

const PAGE: usize = 4096;
const PAGES: u64 = 64;
const BATCH: usize = 4;
const WARM_UP: usize = 20;
const ROUNDS: usize = 40;
/// Most runs for each kind of work; one of them must scale.
const RUNS_MAX: usize = 3;
const THREADS: usize = 64;
/// Request tags of a disk with 64 hardware queues.
const TAGS: u32 = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    CachedRead,
    BufferedWrite,
    DirectRead,
    DirectWrite,
    PlainWrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    OneEach,
    OneForAll,
}

/// The results of a run, in memory that the run's process shares with this one.
#[derive(Default)]
struct Measured {
    requests: AtomicU64,
    /// The time when the last thread began; `ended_ns`: when the last thread ended.
    begun_ns: AtomicU64,
    ended_ns: AtomicU64,
    /// How long threads have waited for lines and locks of the kernel.
    kernel_ns: AtomicU64,
    /// The wait for lines of the program; `longest_ns` is the longest for one line, at `code`.
    program_ns: AtomicU64,
    longest_ns: AtomicU64,
    code: AtomicU64,
}

impl Measured {
    fn shared() -> &'static Measured {
        let (len, access) = (size_of::<Measured>(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let memory = unsafe { libc::mmap(core::ptr::null_mut(), len, access, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED, "a page");
        // SAFETY: zeroes are valid, and the memory stays.
        unsafe { &*memory.cast::<Measured>() }
    }

    /// Returns the requests of all threads per millisecond.
    fn rate(&self) -> f64 {
        let ns = self.ended_ns.load(SeqCst) - self.begun_ns.load(SeqCst);
        self.requests.load(SeqCst) as f64 * 1e6 / ns as f64
    }

    fn add_waits(&self) {
        for wait in cores::waits() {
            let of_kernel = wait.code == 0;
            let sum = if of_kernel { &self.kernel_ns } else { &self.program_ns };
            sum.fetch_add(wait.ns, SeqCst);
            if !of_kernel && self.longest_ns.load(SeqCst) == 0 {
                self.longest_ns.store(wait.ns, SeqCst);
                self.code.store(wait.code - start_of_code(), SeqCst);
            }
        }
    }
}

/// A row of the table, with the address of `code` for `addr2line -e`.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: &AtomicU64| ns.load(SeqCst) / 1000;
        let [kernel, program, longest] =
            [&self.kernel_ns, &self.program_ns, &self.longest_ns].map(us);
        let code = self.code.load(SeqCst);
        write!(f, "{:>6.0}/ms, waited {kernel} us for the kernel, ", self.rate())?;
        write!(f, "{program} us for the program, {longest} us at {code:#x}")
    }
}

fn start_of_code() -> u64 {
    unsafe extern "C" {
        static __executable_start: u8;
    }
    (&raw const __executable_start) as u64
}

struct Submitter {
    kind: Kind,
    context: usize,
    file: Fd,
    iocbs: Vec<Iocb>,
    _memory: AlignedBuffer,
}

impl Submitter {
    fn new(kind: Kind, path: &str, number: usize) -> Submitter {
        let mut context = 0usize;
        assert_eq!(libaio::nowait_io_setup(BATCH as i32, (&raw mut context) as usize), 0);
        let path = CString::new(path).unwrap();
        let direct =
            if matches!(kind, Kind::DirectRead | Kind::DirectWrite) { O_DIRECT } else { 0 };
        let file = inspect::open(&path, O_RDWR | direct, 0).unwrap();
        let mut memory = AlignedBuffer::zeroed(BATCH * PAGE);
        let is_read = matches!(kind, Kind::CachedRead | Kind::DirectRead);
        let iocb = |(slot, part): (usize, &mut [u8])| Iocb {
            opcode: if is_read { cmd::PREAD } else { cmd::PWRITE },
            fildes: file.raw() as u32,
            buf: part.as_mut_ptr() as u64,
            nbytes: PAGE as u64,
            offset: ((number * BATCH + slot) as u64 % PAGES * PAGE as u64) as i64,
            key: 0,
            data: 0,
            rw_flags: 0,
            reqprio: 0,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        };
        let iocbs = memory.chunks_mut(PAGE).enumerate().map(iocb).collect();
        Submitter { kind, context, file, iocbs, _memory: memory }
    }

    fn batch(&mut self) {
        match self.kind {
            Kind::PlainWrite => self.iocbs.iter().for_each(|it| self.write(it)),
            _ => self.submit(),
        }
    }

    fn write(&self, iocb: &Iocb) {
        let segment = IoVec { base: iocb.buf as *mut u8, len: PAGE };
        // SAFETY: the buffer lives as long as `self`.
        let written = unsafe { file::pwritev2(self.file.raw(), &[segment], iocb.offset, 0) };
        assert_eq!(written, Ok(PAGE));
    }

    fn submit(&mut self) {
        let pointers: Vec<*mut Iocb> = self.iocbs.iter_mut().map(|it| &raw mut *it).collect();
        let mut events = [IoEvent::default(); BATCH];
        let count = BATCH as i64;
        let submitted = libaio::nowait_io_submit(self.context, count, pointers.as_ptr() as usize);
        assert_eq!(i64::from(submitted), count);
        let room = events.as_mut_ptr() as usize;
        let taken = libaio::nowait_io_getevents(self.context, count, count, room, 0);
        assert_eq!(i64::from(taken), count);
        assert!(events.iter().all(|it| it.res == PAGE as i64), "{events:?}");
    }
}

fn path(files: Files, number: usize) -> String {
    match files {
        Files::OneEach => format!("/file-{number}"),
        Files::OneForAll => "/file".to_owned(),
    }
}

fn program(kind: Kind, files: Files, threads: usize, measured: &'static Measured) {
    nowait_machine::come_whole();
    if matches!(kind, Kind::DirectRead | Kind::DirectWrite) {
        nowait_machine::say_tags(TAGS);
    }
    for number in 0..threads {
        let mut file = File::create(path(files, number)).unwrap();
        file.write_all(&vec![1; PAGE * PAGES as usize]).unwrap();
    }
    cores::begin();
    let start = Arc::new(Barrier::new(threads));
    let begin = |number| {
        let start = start.clone();
        let work = move || {
            let mut submitter = Submitter::new(kind, &path(files, number), number);
            (0..WARM_UP).for_each(|_| submitter.batch());
            if start.wait().is_leader() {
                cores::forget_waits();
            }
            let begun = cores::now();
            (0..ROUNDS).for_each(|_| submitter.batch());
            measured.requests.fetch_add((ROUNDS * BATCH) as u64, SeqCst);
            measured.begun_ns.fetch_max(begun, SeqCst);
            measured.ended_ns.fetch_max(cores::now(), SeqCst);
        };
        spawn(&format!("submitter {number}"), work)
    };
    let submitters: Vec<_> = (0..threads).map(begin).collect();
    submitters.into_iter().for_each(|it| it.join().unwrap());
    measured.add_waits();
    process::exit();
}

fn measure(kind: Kind, files: Files, threads: usize) -> &'static Measured {
    let measured = Measured::shared();
    process::run(1, move || program(kind, files, threads, measured)).unwrap();
    println!("{kind:?}, {files:?}, {threads:>2} threads: {measured}");
    measured
}

/// The throughput of 64 threads with own files, divided by 64 times that of one thread.
fn scaling(kind: Kind) -> f64 {
    let counts: &[usize] =
        if number("CORES_ALL", 0) == 0 { &[1, THREADS] } else { &[1, 2, 4, 8, 16, 32, THREADS] };
    let rates = counts.iter().map(|threads| measure(kind, Files::OneEach, *threads).rate());
    let rates: Vec<f64> = rates.collect();
    rates[rates.len() - 1] / (THREADS as f64 * rates[0])
}

#[test]
fn threads_with_own_files_do_not_slow_each_other() {
    let _alone = alone();
    let kinds = [Kind::CachedRead, Kind::BufferedWrite, Kind::DirectRead, Kind::DirectWrite];
    for kind in kinds {
        // Addresses differ in each run, and by chance two threads' words may lie in one line.
        let scales = (0..RUNS_MAX).any(|_| scaling(kind) >= 0.9);
        assert!(scales, "{kind:?} scales by less than 0.9");
    }
}

#[test]
fn threads_with_one_file_wait_for_the_lock_of_the_file_system() {
    let _alone = alone();
    let [plain, ours] =
        [Kind::PlainWrite, Kind::BufferedWrite].map(|it| measure(it, Files::OneForAll, THREADS));
    assert!(ours.rate() >= 0.9 * plain.rate(), "{ours}, without nowait {plain}");
    let [kernel, program] = [&ours.kernel_ns, &ours.program_ns].map(|it| it.load(SeqCst));
    assert!(program * 10 < kernel, "{ours}");
}

#[test]
fn a_word_in_which_all_contexts_count_is_found() {
    let _alone = alone();
    mistake::make(Some(Mistake::CountTogether));
    let scaling = scaling(Kind::CachedRead);
    mistake::make(None);
    assert!(scaling < 0.5, "{scaling:.2}");
}
