//! One request to a backend, and its completion.

use crate::lane::Lane;
use nowait_sys::{Errno, cred::Credentials, eventfd::EventFd, file::IoVec};
use std::sync::Arc;

/// What a bio asks for.
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
    /// Wait until one of these `poll(2)` events; the result is the mask of those ready.
    Poll(u16),
}

/// The memory of a bio. Most have one segment, which then needs no allocation.
#[derive(Clone, Debug)]
pub enum Segments {
    /// One contiguous buffer.
    One(IoVec),
    /// Several buffers, filled or written in order.
    Many(Arc<[IoVec]>),
}

impl Segments {
    /// Is empty: for operations without data.
    pub const NONE: Segments = Segments::One(IoVec { base: core::ptr::null_mut(), len: 0 });

    /// Returns the segments in order.
    #[inline]
    pub fn as_slice(&self) -> &[IoVec] {
        match self {
            Segments::One(segment) => core::slice::from_ref(segment),
            Segments::Many(segments) => segments,
        }
    }

    /// Returns the list of several segments: a backend keeps it until the completion.
    pub(crate) fn list(&self) -> Option<&Arc<[IoVec]>> {
        match self {
            Segments::One(_) => None,
            Segments::Many(list) => Some(list),
        }
    }

    /// Returns the total length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_slice().iter().map(|segment| segment.len).sum()
    }

    /// Tells whether there is nothing to transfer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first `limit` bytes.
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

    /// Returns what is left after the first `done` bytes.
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
                // `wrapping_add`: the address is the application's, and may be anything.
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

/// An open file whose number depends on the descriptor table of the thread that asks.
pub trait Descriptor: Send + Sync + core::fmt::Debug {
    /// Returns the number in the calling thread's table.
    ///
    /// # Errors
    /// `EMFILE` and the like: the file could not be brought into the table.
    fn number(&self) -> Result<i32, Errno>;
}

/// For threads that all have the table in which it was made.
impl Descriptor for EventFd {
    fn number(&self) -> Result<i32, Errno> {
        Ok(self.raw())
    }
}

/// One request. The segments' memory belongs to the maker of the bio and must live until its
/// completion has been reaped; that promise is given once, to [`Bio::new`].
#[derive(Clone, Debug)]
pub struct Bio {
    /// What to do.
    pub op: BioOp,
    /// Which file, in the descriptor table of the thread that commits (of the workers, for
    /// [`crate::backends::threads::Threads`]).
    pub fd: i32,
    /// Where the number is only known to the thread that does the work: overrides `fd`
    /// (threads only).
    pub file: Option<Arc<dyn Descriptor>>,
    /// Where the data goes or comes from.
    pub segments: Segments,
    /// Byte offset; -1 for the position of a stream.
    pub offset: i64,
    /// `RWF_*` of [`nowait_sys::file::rwf`].
    pub rw_flags: u32,
    /// I/O priority as ioprio_set(2) encodes it, 0 for the thread's own.
    pub priority: u16,
    /// Comes back in the completion.
    pub token: u64,
    /// Whose it is: where bios wait for a worker, those of one flow do not delay those of others.
    pub flow: u64,
    /// An event counter that the system signals at its end, by its number in the table of the
    /// thread that submits it. Native AIO alone looks at it.
    pub counter: Option<i32>,
    /// What only workers look at.
    pub hints: WorkerHints,
}

/// How a worker carries out a bio; other backends ignore it.
#[derive(Clone, Debug, Default)]
pub struct WorkerHints {
    /// The rights to act with; `None`: the worker's own. A ring acts with those of the thread that
    /// commits.
    pub credentials: Option<Arc<Credentials>>,
    /// Bios of one lane run one after another in the order queued, those that join as one.
    pub lane: Option<Arc<Lane>>,
    /// Announce the whole range to the kernel's readahead before reading.
    pub upfront: bool,
    /// A write that may be carried out as one with the next in its lane, where they adjoin. What
    /// the system does not write of the whole is asked for once more, alone; so no append.
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

    /// Returns `true` if a worker carries this and `next`, which is behind it in its lane, out as
    /// one write.
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

    /// Tells whether it waits for readiness, not for a device: a poll, a stream.
    pub fn is_endless(&self) -> bool {
        self.offset == -1 || matches!(self.op, BioOp::Poll(_))
    }

    /// Returns the descriptor to use on the calling thread.
    ///
    /// # Errors
    /// Those of [`Descriptor::number`].
    pub fn number(&self) -> Result<i32, Errno> {
        self.file.as_ref().map_or(Ok(self.fd), |file| file.number())
    }
}

/// The end of a bio, reported exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// That of the bio.
    pub token: u64,
    /// Bytes transferred, or the ready events of a poll. May be short, as of read(2), write(2).
    pub result: Result<u32, Errno>,
}
