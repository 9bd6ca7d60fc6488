//! Two threads that share only a counter. Each makes requests of one kind, on its own context and
//! file.
//!
//! `independent KIND FOLDER`. Standard input is a socket to a tracer. When both threads have warmed
//! up, the program writes their numbers to the socket. Each byte that it reads from the socket
//! gives the next thread its turn. [`Mark`]s enclose the calls that the tracer steps through.

use nowait_tests::aio::{self, Event, Iocb};
use nowait_tests::request::Context;
use nowait_tests::stepper::Mark;
use std::alloc::{Layout, alloc_zeroed};
use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{ptr, thread};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 1024;
const WARM_UP: u64 = 200;
/// Requests at the beginning of a turn, before the traced requests.
const UNTRACED: u64 = 20;
const TRACED: u64 = 10;

/// Both threads write this counter between marks, so a trace without the counter's cache line is
/// wrong. The program prints the address of the counter.
static COUNTER: AloneInItsLine = AloneInItsLine(AtomicU64::new(0));

#[repr(align(64))]
struct AloneInItsLine(AtomicU64);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    println!("{}", (&raw const COUNTER).addr());
    let threads = [0, 1].map(|number| {
        let ((say, ready), (send, turn)) = (channel(), channel());
        let (kind, folder) = (args[1].clone(), args[2].clone());
        let run = move || run(User::new(&kind, Path::new(&folder), number), &say, &turn);
        (thread::spawn(run), ready, send)
    });
    let numbers = threads.each_ref().map(|it| it.1.recv().expect("the number of a thread"));
    // SAFETY: standard input is open, and nothing else uses it.
    let mut tracer = unsafe { File::from_raw_fd(0) };
    writeln!(tracer, "{} {}", numbers[0], numbers[1]).expect("a tracer");
    for (_, ready, turn) in &threads {
        tracer.read_exact(&mut [0]).expect("a turn");
        turn.send(()).expect("a thread");
        ready.recv().expect("a thread that had its turn");
    }
    // Both contexts live until now: an io_destroy would make the other thread look its own context
    // up again.
    for (thread, _, turn) in threads {
        drop(turn);
        thread.join().expect("a thread that ends");
    }
}

fn run(mut user: User, say: &Sender<i32>, turn: &Receiver<()>) {
    (0..WARM_UP).for_each(|round| user.request(round, false));
    // SAFETY: gettid takes no arguments.
    say.send(unsafe { libc::gettid() }).expect("main");
    turn.recv().expect("a turn");
    for round in WARM_UP..WARM_UP + UNTRACED + TRACED {
        user.request(round, round >= WARM_UP + UNTRACED);
    }
    Mark::Done.stop();
    say.send(0).expect("main");
    turn.recv().expect_err("no second turn");
}

fn drop_cached(file: &File) {
    // SAFETY: numbers only.
    let rc = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(rc, 0, "posix_fadvise");
}

/// Maps a file and tries to lock its pages, so that they stay in the page cache until the process
/// ends.
fn keep_cached(file: &File) {
    let (len, flags) = (BLOCK * BLOCKS as usize, libc::MAP_SHARED | libc::MAP_POPULATE);
    // SAFETY: a new mapping, which nothing uses.
    unsafe {
        let fd = file.as_raw_fd();
        let pages = libc::mmap(ptr::null_mut(), len, libc::PROT_READ, flags, fd, 0);
        assert_ne!(pages, libc::MAP_FAILED, "mmap");
        // Mapped pages stay cached for a while, locked pages until the process ends. RLIMIT_MEMLOCK
        // may forbid the lock.
        let _ = libc::mlock(pages, len);
    }
}

struct User {
    kind: String,
    context: Context,
    file: File,
    pipe: (PipeReader, PipeWriter),
    counter: File,
    buffer: *mut u8,
}

impl User {
    fn new(kind: &str, folder: &Path, number: usize) -> Self {
        let path = folder.join(format!("file-{number}"));
        let direct = if kind.starts_with("direct") { libc::O_DIRECT } else { 0 };
        let mut options = OpenOptions::new();
        let plain = options.read(true).write(true).create(true).truncate(false).open(&path);
        let plain = plain.expect("a file");
        let blocks = vec![number as u8; BLOCK * BLOCKS as usize];
        plain.write_all_at(&blocks, 0).expect("blocks of the file");
        plain.sync_all().expect("blocks of the file");
        // The kernel refuses a direct write with RWF_NOWAIT if pages are cached.
        drop_cached(&plain);
        let file = options.custom_flags(direct).open(&path).expect("the file");
        let layout = Layout::from_size_align(BLOCK, BLOCK).expect("a page");
        // SAFETY: the layout has a size.
        let buffer = unsafe { alloc_zeroed(layout) };
        let pipe = std::io::pipe().expect("a pipe");
        // SAFETY: plain numbers; the new descriptor is the file's.
        let counter = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        if !kind.starts_with("direct") && kind != "uncached-read" {
            keep_cached(&file);
        }
        let context = Context::new(64).expect("io_setup");
        Self { kind: kind.to_owned(), context, file, pipe, counter, buffer }
    }

    /// Makes a request and takes its event; for `counter-read` only in round 0. If `traced`, marks
    /// enclose these calls. If the kind reads an eventfd, marks enclose only the read of the
    /// eventfd.
    fn request(&mut self, round: u64, traced: bool) {
        match self.kind.as_str() {
            "counter-read" => {
                if round == 0 {
                    self.request_alone(round, false);
                }
                self.counter.write_all(&1u64.to_ne_bytes()).expect("a counter with room");
                self.read_counter(traced);
            }
            "named-counter-read" => {
                self.request_alone(round, false);
                self.read_counter(traced);
            }
            _ => self.request_alone(round, traced),
        }
    }

    fn request_alone(&mut self, round: u64, traced: bool) {
        let mut iocb = Box::new(self.iocb(round));
        let mut event = Event::default();
        let pointer = &raw mut *iocb;
        if traced {
            Mark::Begin.stop();
        }
        // SAFETY: iocb, buffer and event live until the event is taken.
        let taken = unsafe {
            let context = self.context.pointer();
            let submitted = aio::io_submit(context, 1, &raw const pointer);
            COUNTER.0.fetch_add(1, Ordering::Relaxed);
            assert_eq!(submitted, 1);
            aio::io_getevents(context, 1, 1, &raw mut event, ptr::null())
        };
        if traced {
            Mark::End.stop();
        }
        let result = if self.kind == "poll" { libc::POLLIN.into() } else { BLOCK as i64 };
        assert_eq!((taken, event.res), (1, result), "{} of round {round}", self.kind);
    }

    fn read_counter(&self, traced: bool) {
        let mut count = 0u64;
        let (fd, room) = (self.counter.as_raw_fd(), (&raw mut count).cast());
        if traced {
            Mark::Begin.stop();
        }
        COUNTER.0.fetch_add(1, Ordering::Relaxed);
        // SAFETY: room for the eight bytes.
        let read = unsafe { libc::read(fd, room, size_of::<u64>()) };
        if traced {
            Mark::End.stop();
        }
        assert!(read == 8 && count > 0, "a read of the eventfd: {read}, {count}");
    }

    fn iocb(&mut self, round: u64) -> Iocb {
        let offset = (round * 7 % BLOCKS * BLOCK as u64) as i64;
        let fd = self.file.as_raw_fd();
        let plain =
            Iocb { fd, buffer: self.buffer as u64, bytes: BLOCK as u64, offset, ..Iocb::default() };
        match self.kind.as_str() {
            "poll" => {
                if round == 0 {
                    self.pipe.1.write_all(b"x").expect("a pipe with room");
                }
                let (fd, buffer) = (self.pipe.0.as_raw_fd(), libc::POLLIN as u64);
                Iocb { fd, opcode: aio::POLL, buffer, ..Iocb::default() }
            }
            "direct-write" | "buffered-write" => Iocb { opcode: aio::PWRITE, ..plain },
            "uncached-read" => {
                drop_cached(&self.file);
                plain
            }
            "named-counter-read" => {
                let eventfd = self.counter.as_raw_fd() as u32;
                Iocb { flags: aio::FLAG_RESFD, eventfd, ..plain }
            }
            "cached-read" | "counter-read" | "direct-read" => plain,
            other => panic!("unknown kind {other}"),
        }
    }
}
