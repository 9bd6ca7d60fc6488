//! Runs one bio by blocking calls.

use super::{Carry, OnPanic};
use crate::{
    Completion,
    bio::{Bio, BioOp, Segments},
};
use nowait_sys::{
    Errno,
    file::{self, Advice, IoVec, rwf},
    thread,
};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The most bytes that read(2) and write(2) transfer in one call (`MAX_RW_COUNT`).
const TRANSFER_MAX: usize = 0x7fff_f000;
const PAGE_SIZE: usize = 4096;

pub(super) struct BioRunner {
    priority: u16,
    carry: Carry,
    failed: OnPanic,
}

impl BioRunner {
    /// The runner restores the calling thread's current I/O priority after each bio.
    pub(super) fn new(carry: Carry, failed: OnPanic) -> BioRunner {
        BioRunner { priority: thread::io_priority(), carry, failed }
    }

    pub(super) fn run_joined(&self, bios: &VecDeque<Bio>) -> Result<usize, Errno> {
        let Some(mut joined) = bios.front().cloned() else { return Ok(0) };
        let segments = bios.iter().flat_map(|bio| bio.segments.as_slice()).copied();
        joined.segments = Segments::Many(segments.collect());
        self.run(&joined).result.map(|bytes| bytes as usize)
    }

    /// The bio is not a poll.
    pub(super) fn run(&self, bio: &Bio) -> Completion {
        let result = match &bio.hints.credentials {
            // `Credentials::run` compares the bio's credentials with the worker's, which the
            // process may change at any time.
            Some(credentials) => {
                credentials.run(|| self.with_priority(bio)).and_then(|result| result)
            }
            None => self.with_priority(bio),
        };
        Completion { token: bio.token, result: result.map(|bytes| bytes as u32) }
    }

    fn with_priority(&self, bio: &Bio) -> Result<usize, Errno> {
        if bio.priority == 0 {
            return self.perform(bio);
        }
        let set = thread::set_io_priority(bio.priority);
        if set == Err(Errno::INVAL) {
            return Err(Errno::INVAL); // no such class
        }
        // If a filter refuses ioprio_set(2), the bio runs with the worker's priority.
        let result = self.perform(bio);
        if set.is_ok() {
            let _ = thread::set_io_priority(self.priority);
        }
        result
    }

    /// If `carry` panics, the bio ends with EIO; the panic is stopped here, so that the callers
    /// restore the worker's credentials and priority.
    fn perform(&self, bio: &Bio) -> Result<usize, Errno> {
        catch_unwind(AssertUnwindSafe(|| (self.carry)(bio))).unwrap_or_else(|cause| {
            (self.failed)(cause.as_ref());
            Err(Errno::IO)
        })
    }
}

/// Runs a bio by system calls on its file; blocks.
///
/// # Errors
/// The errors of the system call, and of [`Bio::number`]. `EINVAL`: the bio is a poll.
pub fn system_calls(bio: &Bio) -> Result<usize, Errno> {
    let fd = bio.number()?;
    match bio.op {
        BioOp::Read | BioOp::Write => transfer(bio, fd),
        BioOp::Fsync => retried(|| file::fsync(fd)).map(|()| 0),
        BioOp::Fdatasync => retried(|| file::fdatasync(fd)).map(|()| 0),
        BioOp::Poll(_) => Err(Errno::INVAL),
    }
}

/// Transfers bytes by one call. If [`continues`] allows it, makes further calls until all bytes are
/// transferred, a call transfers none, or a call fails. If some bytes were transferred, returns
/// their number and no error.
fn transfer(bio: &Bio, fd: i32) -> Result<usize, Errno> {
    let len = bio.segments.len();
    if bio.hints.upfront && bio.op == BioOp::Read && bio.offset >= 0 && len > PAGE_SIZE {
        // Only advice: if it fails, the read is slower.
        let _ = file::advise(fd, bio.offset as u64, len as u64, Advice::WillNeed);
    }
    let mut done = call(bio, fd, bio.segments.as_slice(), bio.offset)?;
    while done > 0 && done < len && continues(bio, fd, len) {
        let rest = bio.segments.after(done);
        match call(bio, fd, rest.as_slice(), bio.offset + done as i64) {
            Ok(more) if more > 0 => done += more,
            _ => break,
        }
    }
    Ok(done)
}

fn continues(bio: &Bio, fd: i32, len: usize) -> bool {
    // A short transfer with NOWAIT means that the rest would wait; an atomic write and an append
    // must stay one call.
    let one_call = bio.rw_flags & (rwf::NOWAIT | rwf::ATOMIC | rwf::APPEND) != 0;
    if bio.offset < 0 || one_call || len > TRANSFER_MAX {
        return false;
    }
    file::stat(fd).is_ok_and(|stat| stat.has_offsets())
}

fn call(bio: &Bio, fd: i32, segments: &[IoVec], offset: i64) -> Result<usize, Errno> {
    let flags = bio.rw_flags;
    let read = bio.op == BioOp::Read;
    let result = retried(|| {
        if read {
            // SAFETY: the segments are valid until the completion, see `Bio::new`.
            unsafe { file::preadv2(fd, segments, offset, flags) }
        } else {
            // SAFETY: as above.
            unsafe { file::pwritev2(fd, segments, offset, flags) }
        }
    });
    if result != Err(Errno::NOSYS) || flags != 0 {
        return result;
    }
    retried(|| {
        if read {
            // SAFETY: as above.
            unsafe { file::preadv(fd, segments, offset) }
        } else {
            // SAFETY: as above.
            unsafe { file::pwritev(fd, segments, offset) }
        }
    })
}

fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
