//! State of a round for most cases: a file, the bytes to write, and the accepted writes.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use nowait_tests::aio::{self, ContextPointer, Event, Iocb};
use nowait_tests::{direct, hang};

pub(crate) const BLOCK: usize = 4096;
pub(crate) const BLOCKS: usize = 64;
pub(crate) const BATCH: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Buffered,
    Holes,
    Extends,
    Durable,
    Overwrites,
}

impl Kind {
    pub(crate) fn of(round: u32) -> Self {
        const ALL: [Kind; 5] =
            [Kind::Buffered, Kind::Holes, Kind::Extends, Kind::Durable, Kind::Overwrites];
        ALL[round as usize % ALL.len()]
    }
}

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(round: u32) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::from(round + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    }

    pub(crate) fn roll(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Records the accepted blocks, in memory that a forked child shares with its parent.
pub(crate) struct Accepted(&'static [AtomicU32; BLOCKS]);

impl Accepted {
    pub(crate) fn new() -> Self {
        // SAFETY: a new mapping.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BLOCK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: zeroed, large enough, never unmapped.
        Self(unsafe { &*memory.cast() })
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|block| block.store(0, SeqCst));
    }

    pub(crate) fn note(&self, block: usize) {
        self.0[block].store(1, SeqCst);
    }

    fn blocks(&self) -> impl Iterator<Item = usize> {
        (0..BLOCKS).filter(|block| self.0[*block].load(SeqCst) != 0)
    }
}

pub(crate) struct Target {
    path: PathBuf,
    /// `O_DIRECT`, or 0 if the file system does not support it.
    direct: i32,
    memory: *const u8,
    pub(crate) accepted: Accepted,
}

// SAFETY: after `new` the memory is only read.
unsafe impl Sync for Target {}

impl Target {
    pub(crate) fn new(folder: &Path) -> Self {
        let layout = std::alloc::Layout::from_size_align(BLOCKS * BLOCK, BLOCK).unwrap();
        // SAFETY: not empty; every byte is written before it is read. Never freed.
        let memory = unsafe { std::alloc::alloc(layout) };
        for block in 0..BLOCKS {
            // SAFETY: within the memory.
            unsafe { memory.add(block * BLOCK).write_bytes(block as u8 + 1, BLOCK) };
        }
        let direct = if direct::is_known_in(folder) { libc::O_DIRECT } else { 0 };
        Self { path: folder.join("file"), direct, memory, accepted: Accepted::new() }
    }

    pub(crate) fn begin(&self, kind: Kind) -> File {
        self.accepted.clear();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&self.path).expect("the file of the rounds");
        if kind == Kind::Overwrites {
            file.write_all_at(&vec![0; BLOCKS * BLOCK], 0).unwrap();
            file.sync_data().unwrap();
        } else if kind != Kind::Extends {
            file.set_len((BLOCKS * BLOCK) as u64).unwrap();
        }
        let flags = match kind {
            Kind::Buffered => 0,
            Kind::Durable => libc::O_DSYNC,
            Kind::Holes | Kind::Extends | Kind::Overwrites => self.direct,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags).open(&self.path).expect("the file")
    }

    pub(crate) fn address(&self, block: usize) -> u64 {
        // SAFETY: within the memory.
        unsafe { self.memory.add(block * BLOCK) as u64 }
    }

    pub(crate) fn check(&self, what: &str) {
        let mut bytes = vec![0; BLOCKS * BLOCK];
        let file = File::open(&self.path).unwrap();
        let mut there = 0;
        while there < bytes.len() {
            match file.read_at(&mut bytes[there..], there as u64).unwrap() {
                0 => break,
                count => there += count,
            }
        }
        for block in self.accepted.blocks() {
            let found = &bytes[block * BLOCK..][..BLOCK];
            let wrong = found.iter().position(|byte| *byte != block as u8 + 1);
            assert_eq!(wrong, None, "{what}: block {block} was accepted, and is not in the file");
        }
    }
}

/// The requests of a thread. [`Requests::submit`] allocates no memory.
pub(crate) struct Requests<'a> {
    target: &'a Target,
    fd: i32,
    context: ContextPointer,
    iocbs: [Iocb; BLOCKS],
    next: usize,
    /// Number of batches so far. Every sixteenth batch ends with an fsync.
    syncs: u64,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(
        target: &'a Target,
        file: &File,
        context: ContextPointer,
        first: usize,
    ) -> Self {
        let iocbs = [Iocb::default(); BLOCKS];
        Self { target, fd: file.as_raw_fd(), context, iocbs, next: first, syncs: 0 }
    }

    pub(crate) fn set_context(&mut self, context: ContextPointer) {
        self.context = context;
    }

    /// Submits writes of the next `count` blocks, every sixteenth time with an fsync. Records the
    /// accepted writes, and returns the result of io_submit.
    pub(crate) fn submit(&mut self, count: usize) -> i32 {
        let first = self.next;
        let mut pointers = [ptr::null_mut(); BATCH + 1];
        for (index, pointer) in pointers[..count].iter_mut().enumerate() {
            let block = (first + index) % BLOCKS;
            self.iocbs[block] = Iocb {
                opcode: aio::PWRITE,
                fd: self.fd,
                data: block as u64,
                buffer: self.target.address(block),
                bytes: BLOCK as u64,
                offset: (block * BLOCK) as i64,
                ..Iocb::default()
            };
            *pointer = &raw mut self.iocbs[block];
        }
        self.syncs += 1;
        let mut sync = Iocb { opcode: aio::FSYNC, fd: self.fd, data: u64::MAX, ..Iocb::default() };
        let all = if self.syncs.is_multiple_of(16) { count + 1 } else { count };
        pointers[count] = &raw mut sync;
        // SAFETY: the call reads the iocbs; their buffers live as long as the process.
        let done = unsafe { aio::io_submit(self.context, all as i64, pointers.as_ptr()) };
        let writes = usize::try_from(done).unwrap_or(0).min(count);
        (0..writes).for_each(|index| self.target.accepted.note((first + index) % BLOCKS));
        self.next = (first + writes) % BLOCKS;
        done
    }
}

pub(crate) fn setup(depth: i32) -> ContextPointer {
    let mut context = ptr::null_mut();
    // SAFETY: a live null pointer, filled by the call.
    let rc = unsafe { aio::io_setup(depth, &raw mut context) };
    assert_eq!(rc, 0, "io_setup");
    context
}

/// Waits for `min` events without a time limit. Returns the number of events taken, and how many of
/// these report a short or failed request; `Err` holds a negative errno.
pub(crate) fn reap(context: ContextPointer, min: i64) -> Result<(usize, usize), i32> {
    let mut events = [Event::default(); BLOCKS];
    // SAFETY: room for as many as are asked for.
    let rc =
        unsafe { aio::io_getevents(context, min, BLOCKS as i64, events.as_mut_ptr(), ptr::null()) };
    let taken = usize::try_from(rc).map_err(|_| rc)?;
    let whole = |event: &Event| match event.data {
        u64::MAX => event.res == 0,
        _ => event.res == BLOCK as i64,
    };
    Ok((taken, events[..taken].iter().filter(|event| !whole(event)).count()))
}

/// Runs `child` in a forked process, and returns the wait status of this process. Panics if the
/// process does not end in time.
pub(crate) fn in_child(what: &str, child: impl FnOnce()) -> i32 {
    rounds_in_child(what, 1, child)
}

pub(crate) fn rounds_in_child(what: &str, rounds: u32, child: impl FnOnce()) -> i32 {
    let patience_ms = (30_000 + 300 * rounds as i32) * hang::slowness() as i32;
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        child();
        // SAFETY: ends the child.
        unsafe { libc::_exit(99) };
    }
    // SAFETY: plain numbers; the descriptor is closed below.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    let mut poll = libc::pollfd { fd: pidfd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry.
    let ended = unsafe { libc::poll(&raw mut poll, 1, patience_ms) };
    if ended != 1 {
        // SAFETY: getpgrp takes no arguments.
        let where_it_is = hang::describe(unsafe { libc::getpgrp() });
        // SAFETY: the child of this process, not waited for yet.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        panic!("{what}: it hangs\n{where_it_is}");
    }
    let mut status = 0;
    // SAFETY: a live local, and this function's descriptor.
    unsafe {
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        libc::close(pidfd);
    }
    status
}
