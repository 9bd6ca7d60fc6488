//! The state of a request until its end: its memory, the reference that keeps its file open, and
//! the text of its error.

use crate::{Error, File, IoBuffer, IoBufferMut};
use nowait_block::Segments;
use nowait_file::{
    Command, Context, Kind, Opened,
    command::{Flags, LEN_MAX, open_for},
    submit::Submission,
};
use nowait_sys::{
    Errno,
    aio::IoEvent,
    file::{IOV_MAX, IoVec},
    time::Deadline,
};
use std::{
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

pub(crate) struct Request<T, B> {
    pub(crate) tag: T,
    pub(crate) buffers: Buffers<B>,
    file: OpenHandle,
    kind: Kind,
    offset: u64,
    len: u64,
    /// For a sync of a range, the number of bytes to make durable; 0: to the end of the file.
    sync_bytes: u64,
    /// `RWF_*`.
    pub(crate) rw_flags: u32,
    pub(crate) deadline: Deadline,
    pub(crate) is_cancelled: bool,
}

pub(crate) enum OpenHandle {
    File(File),
    Other(Box<dyn AsFd + Send>),
    Stream(Arc<dyn AsFd + Send + Sync>),
}

impl OpenHandle {
    fn fd(&self) -> i32 {
        match self {
            OpenHandle::File(file) => file.fd(),
            OpenHandle::Other(source) => source.as_fd().as_raw_fd(),
            OpenHandle::Stream(source) => (**source).as_fd().as_raw_fd(),
        }
    }
}

/// The memory of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffers<B> {
    /// The request transfers nothing.
    None,
    /// One buffer.
    One(B),
    /// Several buffers, filled or written in order.
    Many(Vec<B>),
}

impl<B> Buffers<B> {
    /// Returns the buffer of a request that had one.
    pub fn one(self) -> Option<B> {
        match self {
            Buffers::One(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Returns the buffers of a vectored request.
    pub fn many(self) -> Option<Vec<B>> {
        match self {
            Buffers::Many(buffers) => Some(buffers),
            _ => None,
        }
    }
}

impl<T, B> Request<T, B> {
    pub(crate) fn on(
        file: &File,
        kind: Kind,
        buffers: Buffers<B>,
        offset: u64,
        tag: T,
    ) -> Request<T, B> {
        let file = OpenHandle::File(file.clone());
        Request { offset, ..Request::on_other(file, kind, buffers, tag) }
    }

    /// Makes a sync of `len` bytes from `offset` on; 0: of all data from `offset` on.
    pub(crate) fn sync_of_range(file: &File, offset: u64, len: u64, tag: T) -> Request<T, B> {
        let sync = Request::on(file, Kind::Fdatasync, Buffers::None, offset, tag);
        Request { sync_bytes: len, ..sync }
    }

    pub(crate) fn on_other(
        file: OpenHandle,
        kind: Kind,
        buffers: Buffers<B>,
        tag: T,
    ) -> Request<T, B> {
        Request {
            tag,
            buffers,
            file,
            kind,
            offset: 0,
            len: 0,
            sync_bytes: 0,
            rw_flags: 0,
            deadline: Deadline::NEVER,
            is_cancelled: false,
        }
    }

    /// Makes the command. Calls `segments` when the buffers are in their final place, where nothing
    /// touches them until the request has ended.
    ///
    /// # Errors
    /// The request is not possible: see [`File::check`].
    /// # Safety
    /// The request stays where it is, untouched, until the command's event has been taken; the
    /// segments fit its kind.
    #[inline]
    pub(crate) unsafe fn command(
        &mut self,
        segments: impl FnOnce(&mut Buffers<B>) -> Segments,
    ) -> Result<Command, Error> {
        let segments = bounded(segments(&mut self.buffers));
        self.len = segments.len() as u64;
        let (file, offset) = self.check(&segments)?;
        // SAFETY: the segments are memory of the buffers, which the caller leaves untouched until
        // the event.
        let mut command = unsafe { Command::new(self.kind, file, segments, offset) };
        (command.rw_flags, command.sync_bytes) = (self.rw_flags, self.sync_bytes);
        Ok(command)
    }

    /// If the request is a read of a file, reads the data that is available without waiting.
    /// `None`: the caller must submit the request. A part of the buffers may be overwritten then.
    pub(crate) fn read_at_once(
        &mut self,
        context: &Arc<Context>,
        segments: impl FnOnce(&mut Buffers<B>) -> Segments,
    ) -> Option<Result<u32, Errno>> {
        // Statistics contain the duration of each request, which only a submitted request has.
        if self.kind != Kind::Read || self.file().is_none() || context.io().stats().enabled() {
            return None;
        }
        // SAFETY: the request is borrowed until the attempt is over, and nothing accesses its
        // buffers afterwards.
        let mut command = unsafe { self.command(segments) }.ok()?;
        let mut submission = Submission::new(context);
        let result = submission.read_at_once(self.cached(), &mut command);
        submission.finish();
        result
    }

    pub(crate) fn result(&self, outcome: Result<u32, Errno>) -> Result<usize, Error> {
        let errno = match outcome {
            Ok(value) => return Ok(value as usize),
            Err(errno) => errno,
        };
        let late = errno == Errno::CANCELED && !self.is_cancelled && self.deadline.has_passed();
        Err(self.failed(if late { Errno::TIMEDOUT } else { errno }))
    }

    fn check(&self, segments: &Segments) -> Result<((i32, Flags), i64), Error> {
        match &self.file {
            OpenHandle::File(file) => {
                let signed = match self.kind {
                    Kind::Read | Kind::Write => {
                        file.check(self.kind, segments.as_slice(), self.offset)?
                    }
                    _ => i64::try_from(self.offset).map_err(|_| self.failed(Errno::INVAL))?,
                };
                Ok(((file.fd(), file.flags()), signed))
            }
            other => {
                let fd = other.fd();
                let flags = open_for(fd)
                    .and_then(|flags| flags.check(self.kind).map(|()| flags))
                    .and_then(|flags| match segments.as_slice().len() > IOV_MAX {
                        true => Err(Errno::INVAL),
                        false => Ok(flags),
                    })
                    .map_err(|errno| self.failed(errno))?;
                Ok(((fd, flags), 0))
            }
        }
    }

    pub(crate) fn file(&self) -> Option<&File> {
        match &self.file {
            OpenHandle::File(file) => Some(file),
            _ => None,
        }
    }

    /// Returns the number of bytes of a transfer that is not short. `None`: the request is no
    /// transfer.
    pub(crate) fn whole(&self) -> Option<u64> {
        let transfers = matches!(self.kind, Kind::Read | Kind::Write);
        transfers.then_some(self.len)
    }

    pub(crate) fn is_stream_transfer(&self) -> bool {
        self.whole().is_some() && !matches!(self.file, OpenHandle::File(_))
    }

    /// Returns the buffers, and drops the file's handle as [`File::release`] does.
    pub(crate) fn into_buffers(self) -> Buffers<B> {
        if let OpenHandle::File(file) = self.file {
            file.release();
        }
        self.buffers
    }

    pub(crate) fn cached(&self) -> Option<Opened<'_>> {
        self.file().and_then(File::opened_cached)
    }

    pub(crate) fn failed(&self, errno: Errno) -> Error {
        match &self.file {
            OpenHandle::File(file) => file.refused(self.kind, errno, self.len, self.offset),
            _ => match self.kind {
                Kind::Read => Error::new(errno, format!("read of {} bytes", self.len)),
                Kind::Write => Error::new(errno, format!("write of {} bytes", self.len)),
                _ => Error::new(errno, "poll"),
            },
        }
    }
}

pub(crate) fn outcome(event: IoEvent) -> Result<u32, Errno> {
    u32::try_from(event.res).map_err(|_| Errno::new(event.res.wrapping_neg() as i32))
}

/// Returns segments for the bytes that one request transfers at most.
#[inline]
pub(crate) fn bounded(segments: Segments) -> Segments {
    if segments.len() as u64 > LEN_MAX { segments.first(LEN_MAX as usize) } else { segments }
}

pub(crate) fn writable<B: IoBufferMut>(buffers: &mut Buffers<B>) -> Segments {
    segments(buffers, |buffer| IoVec { base: buffer.as_mut_ptr(), len: buffer.len() })
}

pub(crate) fn readable<B: IoBuffer>(buffers: &mut Buffers<B>) -> Segments {
    segments(buffers, |buffer| IoVec { base: buffer.as_ptr().cast_mut(), len: buffer.len() })
}

fn segments<B>(buffers: &mut Buffers<B>, one: impl Fn(&mut B) -> IoVec) -> Segments {
    match buffers {
        Buffers::None => Segments::NONE,
        Buffers::One(buffer) => Segments::One(one(buffer)),
        Buffers::Many(buffers) => Segments::Many(buffers.iter_mut().map(one).collect()),
    }
}
