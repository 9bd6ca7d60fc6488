//! What is remembered of a descriptor, and what that is good for.
//!
//! A number may be closed and mean another file, and the flags of an open file may change, at any
//! moment and unseen: by another thread, by stdio, by a system call that the program makes itself,
//! by another process that has the same open file. So there is one rule:
//!
//! 1. What is remembered is a hint. It chooses by which system call a request begins, never what
//!    the request comes to: no errno, no access mode, not whether it appends, is direct, or waits.
//! 2. That system call is a transfer of the request itself, on the number itself, in one piece if
//!    it writes: the kernel looks at the descriptor in it, as it would in io_submit. What it has
//!    transferred is transferred, and counts in the command ([`crate::Command::done`]).
//! 3. If that is not all, the flags are read ([`crate::Command::refresh`]) and everything is
//!    decided by them, for what is left. What leaves the submitter's hands has been decided so.
//!
//! | remembered | chooses | the kernel looks in |
//! |---|---|---|
//! | status flags, not O_DIRECT | an attempt without fcntl(2) before it | preadv2, pwrite |
//! | that the file is in memory | an attempt without RWF_NOWAIT | the attempt: it may have to wait |
//! | that it is an event counter | whether to read its name in /proc | a write that cannot be |
//! | how attempts have ended ([`History`]) | an attempt, or none | |
//! | a stream, silent lately ([`Seen`]) | statx(2), then an attempt, or the ring | statx, the attempt |
//!
//! A wrong hint costs time: of a number that has come to mean another file, at most [`BELIEVED`]
//! requests wait for a device inside submit.
//!
//! [`BELIEVED`]: history::BELIEVED

mod history;
mod seen;

pub(crate) use history::History;
pub(crate) use seen::Seen;

use crate::Kind;
use nowait_sys::{
    Errno,
    file::{self, O_ACCMODE, O_PATH, O_RDONLY, O_WRONLY},
};

/// Status flags of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Read for this request: they decide.
    Read(i32),
    /// Read for an earlier one: a hint.
    Remembered(i32),
}

impl Flags {
    /// Checks that the file is open for requests of this kind; of what is only remembered the
    /// kernel is the judge.
    ///
    /// # Errors
    /// `EBADF`: it is not.
    pub fn check(self, kind: Kind) -> Result<(), Errno> {
        let Flags::Read(flags) = self else { return Ok(()) };
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
            Flags::Read(flags) | Flags::Remembered(flags) => flags,
        }
    }

    /// Tells whether they are only remembered.
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
