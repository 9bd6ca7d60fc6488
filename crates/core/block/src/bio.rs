//! One request to a backend, and its completion.

use crate::lane::Lane;
use nowait_sys::{Errno, cred::Credentials, eventfd::EventFd, file::IoVec};
use std::sync::Arc;

/// The operation of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BioOp {
    /// Fill the segments from the file.
    Read,
    /// Write the segments to the file.
    Write,
    /// Make data and metadata durable.
    Fsync,
    /// Make data durable.
    Fdatasync,
    /// Wait until one of these `poll(2)` events is ready; the result is the mask of ready events,
    /// which may also contain POLLERR and POLLHUP.
    Poll(u16),
}

/// The memory of a bio.
#[derive(Clone, Debug)]
pub enum Segments {
    /// One contiguous buffer.
    One(IoVec),
    /// Several buffers, filled or written in order.
    Many(Arc<[IoVec]>),
}

impl Segments {
    /// No memory, for operations without data.
    pub const NONE: Segments = Segments::One(IoVec { base: core::ptr::null_mut(), len: 0 });

    /// Returns the segments in order.
    #[inline]
    pub fn as_slice(&self) -> &[IoVec] {
        match self {
            Segments::One(segment) => core::slice::from_ref(segment),
            Segments::Many(segments) => segments,
        }
    }

    /// Returns the list of [`Segments::Many`], which a backend must keep until the completion.
    pub(crate) fn list(&self) -> Option<&Arc<[IoVec]>> {
        match self {
            Segments::One(_) => None,
            Segments::Many(list) => Some(list),
        }
    }

    /// Returns the total length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Segments::One(segment) => segment.len,
            Segments::Many(segments) => segments.iter().map(|segment| segment.len).sum(),
        }
    }

    /// Returns `true` if the total length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns segments for the first `limit` bytes, or for all bytes if there are fewer.
    #[must_use]
    pub fn first(&self, mut limit: usize) -> Segments {
        let mut kept = Vec::new();
        for segment in self.as_slice() {
            let len = segment.len.min(limit);
            limit -= len;
            if len > 0 {
                kept.push(IoVec { base: segment.base, len });
            }
        }
        match kept.as_slice() {
            [] => Segments::NONE,
            [one] => Segments::One(*one),
            _ => Segments::Many(kept.into()),
        }
    }

    /// Returns segments for the rest after the first `done` bytes.
    #[must_use]
    pub fn after(&self, mut done: usize) -> Segments {
        if done == 0 {
            return self.clone();
        }
        let mut left = Vec::with_capacity(self.as_slice().len());
        for segment in self.as_slice() {
            let skipped = done.min(segment.len);
            done -= skipped;
            if skipped < segment.len {
                // `wrapping_add`: the application chooses the address, which may be any number.
                let base = segment.base.wrapping_add(skipped);
                left.push(IoVec { base, len: segment.len - skipped });
            }
        }
        match left.as_slice() {
            [] => Segments::NONE,
            [one] => Segments::One(*one),
            _ => Segments::Many(left.into()),
        }
    }
}

/// An open file whose number depends on the descriptor table of the calling thread.
pub trait Descriptor: Send + Sync + core::fmt::Debug {
    /// Returns the number in the calling thread's table.
    ///
    /// # Errors
    /// `EMFILE` and other errors: the calling thread's table has no number for the file.
    fn number(&self) -> Result<i32, Errno>;
}

/// The number is right only on threads that use the descriptor table in which the eventfd was made.
impl Descriptor for EventFd {
    fn number(&self) -> Result<i32, Errno> {
        Ok(self.raw())
    }
}

/// One request to a backend. [`Bio::new`] says how long the segments' memory must stay valid.
#[derive(Clone, Debug)]
pub struct Bio {
    /// The operation.
    pub op: BioOp,
    /// The file's number in the descriptor table of the thread that submits the bio to the kernel;
    /// for [`crate::backends::threads::Threads`] in the workers' table.
    pub fd: i32,
    /// A file that worker threads use instead of `fd`; rings and native AIO ignore it.
    pub file: Option<Arc<dyn Descriptor>>,
    /// The memory of the data.
    pub segments: Segments,
    /// Byte offset; -1 for a stream, which has no offsets.
    pub offset: i64,
    /// `RWF_*` of [`nowait_sys::file::rwf`].
    pub rw_flags: u32,
    /// I/O priority as ioprio_set(2) encodes it; 0 means the priority of the thread that makes the
    /// system call.
    pub priority: u16,
    /// A value that the completion returns.
    pub token: u64,
    /// The flow of the bio. Workers take waiting bios from the flows in turn ([`crate::Fair`]).
    pub flow: u64,
    /// An eventfd that the kernel signals when the bio ends, by its number in the submitting
    /// thread's table. Only reads and writes by native AIO use it.
    pub counter: Option<i32>,
    /// Hints that only workers use.
    pub hints: WorkerHints,
}

/// Hints for the worker that runs a bio; other backends ignore them.
#[derive(Clone, Debug, Default)]
pub struct WorkerHints {
    /// The credentials with which the worker acts; `None`: the worker's own.
    pub credentials: Option<Arc<Credentials>>,
    /// The lane in which the bio waits; workers run the bios of a lane one at a time.
    pub lane: Option<Arc<Lane>>,
    /// `true`: the worker announces the whole range to the kernel's readahead before it reads more
    /// than a page.
    pub upfront: bool,
    /// `true`: a worker may run this write and the next write of its lane in one call, if the two
    /// adjoin. If the joined call does not write all of this write, the worker repeats this write
    /// alone, so it must not be an append.
    pub joins: bool,
}

impl Bio {
    /// Makes a bio with no flags and no hints.
    ///
    /// # Safety
    /// The segments must be valid for `op` until the bio's completion has been reaped, or the
    /// kernel must be the only one to touch them (a wrong address is then an `EFAULT`).
    pub unsafe fn new(op: BioOp, fd: i32, segments: Segments, offset: i64, token: u64) -> Bio {
        Bio {
            op,
            fd,
            file: None,
            segments,
            offset,
            rw_flags: 0,
            priority: 0,
            token,
            flow: 0,
            counter: None,
            hints: WorkerHints::default(),
        }
    }

    /// Returns `true` if a worker may run this bio and `next`, the next bio of its lane, in one
    /// call.
    pub(crate) fn goes_with(&self, next: &Bio) -> bool {
        let same_file = match (&self.file, &next.file) {
            (Some(file), Some(its)) => Arc::ptr_eq(file, its),
            (None, None) => self.fd == next.fd,
            _ => false,
        };
        let may = |bio: &Bio| bio.hints.joins && bio.op == BioOp::Write && !bio.segments.is_empty();
        let end = self.offset.checked_add(self.segments.len() as i64);
        may(self)
            && may(next)
            && same_file
            && self.hints.credentials == next.hints.credentials
            && end == Some(next.offset)
            && self.rw_flags == next.rw_flags
            && self.priority == next.priority
    }

    /// Returns `true` if the bio waits for readiness, not for a device: a poll, or a transfer of a
    /// stream.
    pub fn is_endless(&self) -> bool {
        self.offset == -1 || matches!(self.op, BioOp::Poll(_))
    }

    /// Returns the descriptor to use on the calling thread, or the error of [`Descriptor::number`].
    pub fn number(&self) -> Result<i32, Errno> {
        self.file.as_ref().map_or(Ok(self.fd), |file| file.number())
    }
}

/// The end of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token of the bio.
    pub token: u64,
    /// The number of bytes transferred, which may be short as with read(2) and write(2); the ready
    /// events of a poll; 0 after a sync.
    pub result: Result<u32, Errno>,
}
