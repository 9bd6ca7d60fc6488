//! A decoded request, before anything has been done about it.

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

/// Status flags of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Read for this request: they decide.
    Read(i32),
    /// Read for an earlier one: a hint.
    Remembered(i32),
    /// Read when the file was opened, by what keeps it open, on a memory file system: they decide,
    /// and where the file is stays so.
    InMemory(i32),
}

impl Flags {
    /// Checks that the file is open for requests of this kind; of what is only remembered the
    /// kernel is the judge.
    ///
    /// # Errors
    /// `EBADF`: it is not.
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

    /// Returns `true` if they are only remembered.
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

/// One request as the application wrote it.
///
/// Made only by [`Command::new`], whose caller promises that the segments live long enough.
#[derive(Clone, Debug)]
pub struct Command {
    /// The operation.
    pub kind: Kind,
    /// The application's descriptor.
    pub fd: i32,
    /// The descriptor's status flags, read when the command was made or remembered.
    pub(crate) flags: Flags,
    /// Bytes transferred so far: the part that takes the command on goes on behind them.
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
    /// Bytes from `offset` on that a [`Kind::Fdatasync`] is about; 0: all from there on.
    pub sync_bytes: u64,
}

/// Most bytes the kernel moves in one request (`MAX_RW_COUNT`).
pub const LEN_MAX: u64 = 0x7fff_f000;

impl Command {
    /// Makes a command without flags and priority; `file` is the descriptor and its status flags
    /// (see [`open_for`]).
    ///
    /// # Safety
    /// The segments stay valid for `kind` until the command's event has been delivered, or are
    /// addresses that only the kernel will look at.
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

    /// Reads the status flags if they were only remembered; tells whether they were.
    ///
    /// # Errors
    /// `EBADF`: not open, or not open for this.
    pub(crate) fn refresh(&mut self) -> Result<bool, Errno> {
        let were_remembered = self.is_hinted();
        if were_remembered {
            self.flags = open_for(self.fd)?;
            self.flags.check(self.kind)?;
        }
        Ok(were_remembered)
    }

    /// Returns `true` if the status flags are only remembered: nothing may be decided by them.
    pub(crate) fn is_hinted(&self) -> bool {
        self.flags.are_remembered()
    }

    /// Returns `true` if its file is known to be in memory, without a look.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.flags, Flags::InMemory(_))
    }

    /// Returns the result of the command if it ends now.
    pub(crate) fn transferred(&self) -> u32 {
        self.done as u32
    }

    /// Returns `true` if all is transferred.
    pub(crate) fn is_complete(&self) -> bool {
        self.done >= self.len
    }

    /// Returns the memory of what is left, and the offset where that begins.
    pub(crate) fn rest(&self) -> (Segments, u64) {
        (self.segments.after(self.done as usize), self.offset as u64 + self.done)
    }

    /// Moves at most `limit` bytes of what is left, by one system call on `fd`, which is the
    /// command's file in the table of the calling thread. Blocks unless `flags` say RWF_NOWAIT.
    ///
    /// # Errors
    /// The errors of preadv2(2) and pwritev2(2).
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

    /// Returns `true` if a transfer of nothing that must not wait is to be believed. Before Linux
    /// 5.11 such a read ends at a page that is marked for read-ahead as it does at the end of the
    /// file.
    pub(crate) fn seems_over(&self) -> bool {
        if self.kind != Kind::Read || self.is_complete() || self.wants_nowait() {
            return true;
        }
        let Ok(stat) = file::stat(self.fd) else { return true };
        !stat.has_offsets() || self.ends_before_rest(&stat)
    }

    /// Returns `true` if a read has transferred all that its file holds.
    pub(crate) fn is_at_end(&self) -> bool {
        let stat = || file::stat(self.fd).ok();
        self.kind == Kind::Read && stat().is_some_and(|stat| self.ends_before_rest(&stat))
    }

    fn ends_before_rest(&self, stat: &Stat) -> bool {
        let next = self.offset.saturating_add_unsigned(self.done);
        stat.is_regular() && next >= stat.size
    }

    /// Makes the bio for what is left, on `fd`, which is the command's file in the table of the
    /// thread that will commit.
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

    /// Returns the operation of the bio that carries it.
    fn bio_op(&self) -> BioOp {
        match self.kind {
            Kind::Read => BioOp::Read,
            Kind::Write => BioOp::Write,
            Kind::Fsync => BioOp::Fsync,
            Kind::Fdatasync => BioOp::Fdatasync,
            Kind::Poll(events) => BioOp::Poll(events),
        }
    }

    /// Returns the bytes that a sync is about.
    pub(crate) fn sync_range(&self) -> Range<u64> {
        let from = self.offset as u64;
        match self.sync_bytes {
            0 => from..u64::MAX,
            bytes => from..from.saturating_add(bytes),
        }
    }

    /// Returns `true` if the caller asked never to wait: then EAGAIN is the answer, not a retry.
    pub fn wants_nowait(&self) -> bool {
        self.rw_flags & rwf::NOWAIT != 0
    }

    /// Returns `true` if a write is durable when it ends.
    pub fn is_synchronous(&self) -> bool {
        self.rw_flags & (rwf::DSYNC | rwf::SYNC) != 0 || self.flags.bits() & O_DSYNC != 0
    }

    /// Returns how far a write to a cached file must be durable before it ends.
    pub(crate) fn durable(&self) -> Option<SyncLevel> {
        // O_SYNC includes O_DSYNC's bit and one more.
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

    /// Returns `true` if a write changes the bytes at its offset, and may be asked for once more.
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
