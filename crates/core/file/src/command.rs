//! A decoded request, and how much of it is done.

use core::ops::Range;
use nowait_block::{Bio, BioOp, Segments};
use nowait_cache::SyncLevel;
use nowait_retry::stats::Work;
use nowait_sys::{
    Errno,
    file::{
        self, O_ACCMODE, O_APPEND, O_DIRECT, O_DSYNC, O_PATH, O_RDONLY, O_SYNC, O_WRONLY, Stat, rwf,
    },
};

/// The operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fill the segments.
    Read,
    /// Write the segments.
    Write,
    /// Make data and metadata durable.
    Fsync,
    /// Make data durable.
    Fdatasync,
    /// Wait for readiness, one shot.
    Poll(u16),
}

/// Status flags of an open file, with the time at which they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Flags that were read for this request: decisions may rely on them.
    Read(i32),
    /// Flags that were read for an earlier request: only a hint.
    Remembered(i32),
    /// Flags of a file on a memory file system, read by the owner that keeps the file open:
    /// decisions may rely on the flags. The file stays in memory.
    InMemory(i32),
}

impl Flags {
    /// Checks that the file is open for requests of this kind. Remembered flags are not checked:
    /// the kernel checks the descriptor itself.
    ///
    /// # Errors
    /// `EBADF`: the file is not open for such requests.
    pub fn check(self, kind: Kind) -> Result<(), Errno> {
        let (Flags::Read(flags) | Flags::InMemory(flags)) = self else { return Ok(()) };
        let mode = flags & O_ACCMODE;
        let allowed = match kind {
            Kind::Read => mode != O_WRONLY && mode != O_ACCMODE,
            Kind::Write => mode != O_RDONLY && mode != O_ACCMODE,
            _ => true,
        };
        if allowed { Ok(()) } else { Err(Errno::BADF) }
    }

    /// Returns the flags as fcntl(2) has them.
    pub fn bits(self) -> i32 {
        match self {
            Flags::Read(flags) | Flags::Remembered(flags) | Flags::InMemory(flags) => flags,
        }
    }

    pub(crate) fn are_remembered(self) -> bool {
        matches!(self, Flags::Remembered(_))
    }
}

/// Reads the status flags of the open file behind `fd`.
///
/// # Errors
/// `EBADF`: not open, or only as a name (O_PATH).
pub fn open_for(fd: i32) -> Result<Flags, Errno> {
    let flags = file::status_flags(fd)?;
    if flags & O_PATH != 0 { Err(Errno::BADF) } else { Ok(Flags::Read(flags)) }
}

/// A decoded request, and the number of bytes transferred so far.
///
/// [`Command::new`] is unsafe, because the segments must live long enough.
#[derive(Clone, Debug)]
pub struct Command {
    /// The operation.
    pub kind: Kind,
    /// The application's descriptor.
    pub fd: i32,
    pub(crate) flags: Flags,
    pub(crate) done: u64,
    /// The application's memory.
    pub segments: Segments,
    /// Bytes in all segments, at most [`LEN_MAX`].
    pub len: u64,
    /// Byte offset, not negative.
    pub offset: i64,
    /// `RWF_*`.
    pub rw_flags: u32,
    /// I/O priority, 0 for the thread's own.
    pub priority: u16,
    /// Bytes from `offset` on that a [`Kind::Fdatasync`] makes durable; 0: all from `offset` on.
    pub sync_bytes: u64,
}

/// Most bytes that the kernel transfers in one request (`MAX_RW_COUNT`).
pub const LEN_MAX: u64 = 0x7fff_f000;

impl Command {
    /// Makes a command with no `RWF_*` flags and with priority 0; `file` is the descriptor and its
    /// status flags (see [`open_for`]).
    ///
    /// # Safety
    /// The segments stay valid for `kind` until the command's event has been delivered, or are
    /// addresses that only the kernel accesses.
    pub unsafe fn new(kind: Kind, file: (i32, Flags), segments: Segments, offset: i64) -> Command {
        let len = (segments.len() as u64).min(LEN_MAX);
        let (fd, flags) = file;
        Command {
            kind,
            fd,
            flags,
            done: 0,
            segments,
            len,
            offset,
            rw_flags: 0,
            priority: 0,
            sync_bytes: 0,
        }
    }

    /// Reads the status flags again if they were only remembered. Returns `true` if it has read
    /// them.
    pub(crate) fn refresh(&mut self) -> Result<bool, Errno> {
        let were_remembered = self.is_hinted();
        if were_remembered {
            self.flags = open_for(self.fd)?;
            self.flags.check(self.kind)?;
        }
        Ok(were_remembered)
    }

    /// Returns `true` if the status flags are only remembered: then no result may depend on them.
    pub(crate) fn is_hinted(&self) -> bool {
        self.flags.are_remembered()
    }

    /// Returns `true` if the file is known to be in memory, from its owner ([`Flags::InMemory`]).
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.flags, Flags::InMemory(_))
    }

    pub(crate) fn transferred(&self) -> u32 {
        self.done as u32
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.done >= self.len
    }

    pub(crate) fn rest(&self) -> (Segments, u64) {
        (self.segments.after(self.done as usize), self.offset as u64 + self.done)
    }

    /// Transfers at most `limit` bytes of the rest by one system call, which may block unless the
    /// flags have RWF_NOWAIT. `fd` is the command's file in the calling thread's descriptor table.
    pub(crate) fn transfer(&self, fd: i32, limit: usize, flags: u32) -> Result<usize, Errno> {
        let rest;
        let segments = if self.done == 0 && limit as u64 >= self.len {
            self.segments.as_slice()
        } else {
            rest = self.segments.after(self.done as usize).first(limit);
            rest.as_slice()
        };
        let (offset, flags) = (self.offset + self.done as i64, self.rw_flags | flags);
        // SAFETY: the command's maker promised that its segments are valid until its event.
        unsafe {
            match self.kind {
                Kind::Read => file::preadv2(fd, segments, offset, flags),
                _ => file::pwritev2(fd, segments, offset, flags),
            }
        }
    }

    /// Returns `true` if the command is over after a transfer with RWF_NOWAIT that returned 0.
    /// Before Linux 5.11 a read also returns 0 at a page that is marked for readahead.
    pub(crate) fn seems_over(&self) -> bool {
        if self.kind != Kind::Read || self.is_complete() || self.wants_nowait() {
            return true;
        }
        let Ok(stat) = file::stat(self.fd) else { return true };
        !stat.has_offsets() || self.ends_before_rest(&stat)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        let stat = || file::stat(self.fd).ok();
        self.kind == Kind::Read && stat().is_some_and(|stat| self.ends_before_rest(&stat))
    }

    pub(crate) fn next_offset(&self) -> i64 {
        self.offset.saturating_add_unsigned(self.done)
    }

    fn ends_before_rest(&self, stat: &Stat) -> bool {
        stat.is_regular() && self.next_offset() >= stat.size
    }

    /// Makes the bio for the rest of the command, on `fd`, which is the command's file in the
    /// descriptor table of the thread that will commit.
    pub fn bio(&self, fd: i32, token: u64) -> Bio {
        let moves = matches!(self.kind, Kind::Read | Kind::Write);
        let offset = if moves { self.offset + self.done as i64 } else { 0 };
        let segments = self.segments.after(self.done as usize);
        // SAFETY: the maker of the command promised that its segments live until the event,
        // which is delivered after the bio's completion.
        let mut bio = unsafe { Bio::new(self.bio_op(), fd, segments, offset, token) };
        bio.rw_flags = self.rw_flags;
        bio.priority = self.priority;
        bio
    }

    fn bio_op(&self) -> BioOp {
        match self.kind {
            Kind::Read => BioOp::Read,
            Kind::Write => BioOp::Write,
            Kind::Fsync => BioOp::Fsync,
            Kind::Fdatasync => BioOp::Fdatasync,
            Kind::Poll(events) => BioOp::Poll(events),
        }
    }

    pub(crate) fn sync_range(&self) -> Range<u64> {
        let from = self.offset as u64;
        match self.sync_bytes {
            0 => from..u64::MAX,
            bytes => from..from.saturating_add(bytes),
        }
    }

    /// Returns `true` if the caller set RWF_NOWAIT.
    pub fn wants_nowait(&self) -> bool {
        self.rw_flags & rwf::NOWAIT != 0
    }

    /// Returns `true` if a write must be durable when it ends.
    pub fn is_synchronous(&self) -> bool {
        self.rw_flags & (rwf::DSYNC | rwf::SYNC) != 0 || self.flags.bits() & O_DSYNC != 0
    }

    /// Returns how far a write to a cached file must be durable before it ends.
    pub(crate) fn durable(&self) -> Option<SyncLevel> {
        // O_SYNC consists of O_DSYNC's bit and one more bit.
        let all = self.rw_flags & rwf::SYNC != 0 || self.flags.bits() & O_SYNC == O_SYNC;
        match self.is_synchronous() {
            true => Some(if all { SyncLevel::All } else { SyncLevel::Data }),
            false => self.is_direct().then_some(SyncLevel::WriteOnly),
        }
    }

    /// Returns `true` if a write goes to the end of the file.
    pub fn is_append(&self) -> bool {
        self.rw_flags & rwf::APPEND != 0
            || (self.flags.bits() & O_APPEND != 0 && self.rw_flags & rwf::NOAPPEND == 0)
    }

    /// Returns `true` if a write neither appends nor is atomic, so that it may be joined with
    /// others.
    pub(crate) fn is_positioned(&self) -> bool {
        !self.is_append() && self.rw_flags & rwf::ATOMIC == 0
    }

    /// Returns the kind of work under which reports count the command, if its file has offsets.
    pub(crate) fn work(&self) -> Work {
        match (self.kind, self.is_direct()) {
            (Kind::Read, false) => Work::Read,
            (Kind::Read, true) => Work::DirectRead,
            (Kind::Write, false) => Work::Write,
            (Kind::Write, true) => Work::DirectWrite,
            (Kind::Fsync | Kind::Fdatasync, _) => Work::Sync,
            (Kind::Poll(_), _) => Work::Stream,
        }
    }

    /// Returns `true` if the file is open for direct I/O.
    pub fn is_direct(&self) -> bool {
        self.flags.bits() & O_DIRECT != 0
    }
}
