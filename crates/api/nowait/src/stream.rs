//! Sources without offsets: pipes, sockets, terminals.

use crate::{
    Buffers, IoBuffer, IoBufferMut, Nowait,
    async_file::{many, one},
    operation::{Operation, Readiness, Transfer, VectoredTransfer},
    request::{OpenHandle, Request, readable, writable},
};
use core::fmt;
use nowait_block::Segments;
use nowait_file::Kind;
use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
};

/// A source or sink without offsets, bound to an engine. Cheap to clone. The source is dropped when
/// the last clone is dropped and no request on the stream is left.
///
/// A read or write moves the bytes that are available, as read(2) and write(2) do: fewer bytes than
/// asked for are no error, and a read that returns 0 bytes has reached the end. Requests of one
/// direction take effect in the order in which they were submitted. The descriptor may be blocking
/// or non-blocking; the stream does not change this.
///
/// ```
/// # fn main() -> Result<(), nowait::Error> {
/// # let nowait = nowait::Nowait::new()?;
/// # futures_lite::future::block_on(async {
/// use nowait::Stream;
///
/// let (reader, writer) = std::io::pipe().unwrap();
/// let (reader, writer) = (Stream::new(&nowait, reader), Stream::new(&nowait, writer));
/// let (read, written) =
///     futures_lite::future::zip(reader.read(vec![0; 16]), writer.write(&b"hello"[..])).await;
/// assert_eq!(written.0?, 5);
/// assert_eq!(read.1[..read.0?], *b"hello");
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct Stream {
    source: Arc<dyn AsFd + Send + Sync>,
    nowait: Nowait,
}

impl Stream {
    /// Makes a stream of a pipe, a socket, a terminal or an eventfd.
    pub fn new(nowait: &Nowait, source: impl AsFd + Send + Sync + 'static) -> Stream {
        Stream { source: Arc::new(source), nowait: nowait.clone() }
    }

    pub(crate) fn held(&self) -> OpenHandle {
        OpenHandle::Stream(self.source.clone())
    }

    /// Reads up to the whole of `buffer`; waits for the first byte.
    ///
    /// Errors of the result: the errors of read(2), `ECANCELED`, `ETIMEDOUT`.
    pub fn read<B: IoBufferMut + Send>(&self, buffer: B) -> Transfer<B> {
        let request = Request::on_other(self.held(), Kind::Read, Buffers::One(buffer), ());
        Operation::new(&self.nowait, request, writable, one)
    }

    /// Writes up to the whole of `buffer`; waits for room for the first byte.
    ///
    /// Errors of the result: the errors of write(2), `ECANCELED`, `ETIMEDOUT`.
    pub fn write<B: IoBuffer + Send>(&self, buffer: B) -> Transfer<B> {
        let request = Request::on_other(self.held(), Kind::Write, Buffers::One(buffer), ());
        Operation::new(&self.nowait, request, readable, one)
    }

    /// Reads as [`Stream::read`] does, into several buffers, one after another; `EINVAL`: more than
    /// 1024 of them.
    pub fn read_vectored<B: IoBufferMut + Send>(&self, buffers: Vec<B>) -> VectoredTransfer<B> {
        let request = Request::on_other(self.held(), Kind::Read, Buffers::Many(buffers), ());
        Operation::new(&self.nowait, request, writable, many)
    }

    /// Writes as [`Stream::write`] does, from several buffers, one after another; `EINVAL`: more
    /// than 1024 of them.
    pub fn write_vectored<B: IoBuffer + Send>(&self, buffers: Vec<B>) -> VectoredTransfer<B> {
        let request = Request::on_other(self.held(), Kind::Write, Buffers::Many(buffers), ());
        Operation::new(&self.nowait, request, readable, many)
    }

    /// Waits until the source is ready for one of `events`, a mask as in poll(2):
    /// [`POLL_IN`](crate::POLL_IN), [`POLL_OUT`](crate::POLL_OUT) and their like.
    ///
    /// Errors of the result: `EBADF`: opened by O_PATH. `ECANCELED`, `ETIMEDOUT`.
    pub fn ready(&self, events: u16) -> Readiness {
        let request = Request::on_other(self.held(), Kind::Poll(events), Buffers::None, ());
        let finish = |result: Result<usize, _>, _| result.map(|ready| ready as u16);
        Operation::new(&self.nowait, request, |_| Segments::NONE, finish)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self.source).as_fd()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream {}", self.as_fd().as_raw_fd())
    }
}
