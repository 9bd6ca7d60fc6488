//! A file as a stream of bytes: `AsyncRead`, `AsyncWrite` and `AsyncSeek`.

use crate::{AsyncFile, Buffers, Error, operation::Transfer};
use core::{
    fmt,
    future::Future,
    mem,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};
use std::io::{self, SeekFrom};

/// Most bytes of one request: of a read ahead, or of a write that continues after the call.
const CHUNK: usize = 64 << 10;

/// A file with a position, made by [`AsyncFile::cursor`].
///
/// A cursor implements `AsyncRead`, `AsyncWrite` and `AsyncSeek` of `futures-io` and of tokio, each
/// behind the feature of that name. These traits lend their buffers for one poll only, so a cursor
/// copies the bytes once more than [`AsyncFile`] does: reads come from a buffer of 64 KiB, and a
/// write returns when its bytes are copied. If the write then fails, the next read, write, seek,
/// flush or close returns the error. If the cursor is dropped before that, the error is lost.
/// `flush` does not make data durable: `sync_data` of [`Cursor::file`] does.
///
/// In the mode [`CacheMode::Direct`](crate::CacheMode::Direct) requests of a cursor mostly fail,
/// because the cursor does not align them.
pub struct Cursor {
    file: AsyncFile,
    position: u64,
    state: State,
    /// The target of a seek that `start_seek` of tokio has begun and no poll has completed.
    #[cfg(feature = "tokio")]
    seek: Option<SeekFrom>,
}

enum State {
    /// Bytes that were read ahead and that the program has not read.
    Idle(Vec<u8>, Range<usize>),
    Reading(Transfer<Vec<u8>>),
    /// The write, and the offset where it began: if it fails, the position becomes this offset plus
    /// the bytes written.
    Writing(Transfer<Vec<u8>>, u64),
    /// A seek waits for the file's size; its target is this far from the end of the file.
    Seeking(Size, i64),
}

type Size = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>>;

impl Cursor {
    pub(crate) fn new(file: AsyncFile, position: u64) -> Cursor {
        Cursor {
            file,
            position,
            state: State::IDLE,
            #[cfg(feature = "tokio")]
            seek: None,
        }
    }

    /// Returns the file, for requests that a stream of bytes does not have: syncs, the size,
    /// truncation.
    pub fn file(&self) -> &AsyncFile {
        &self.file
    }

    /// Returns the offset of the next byte.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Waits for the end of the read or write in flight. Drops a wait for the file's size.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (result, buffer) = match &mut self.state {
            State::Idle(..) => return Poll::Ready(Ok(())),
            State::Reading(read) => {
                let (result, buffer) = ready!(Pin::new(read).poll(cx));
                (result.map_err(io::Error::from), buffer)
            }
            State::Writing(write, start) => {
                let (result, buffer) = ready!(Pin::new(write).poll(cx));
                self.position = *start + written(&result);
                (whole(result, buffer.len()).map(|()| 0), buffer)
            }
            State::Seeking(..) => (Ok(0), Vec::new()),
        };
        let unread = 0..*result.as_ref().unwrap_or(&0);
        self.state = State::Idle(buffer, unread);
        Poll::Ready(result.map(drop))
    }

    /// Returns an empty slice at the end of the file.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        loop {
            let has_read = matches!(self.state, State::Reading(_));
            ready!(self.poll_idle(cx))?;
            match &self.state {
                State::Idle(_, unread) if unread.is_empty() && !has_read => {}
                _ => break,
            }
            let mut buffer = self.take_buffer();
            buffer.resize(CHUNK, 0);
            self.state = State::Reading(self.file.read_at(buffer, self.position));
        }
        match &self.state {
            State::Idle(buffer, unread) => Poll::Ready(Ok(&buffer[unread.clone()])),
            _ => Poll::Ready(Ok(&[])),
        }
    }

    fn take_out(&mut self, bytes: usize) {
        if let State::Idle(_, unread) = &mut self.state {
            unread.start = unread.end.min(unread.start + bytes);
            self.position += bytes as u64;
        }
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        match mem::replace(&mut self.state, State::IDLE) {
            State::Idle(buffer, _) => buffer,
            _ => Vec::new(),
        }
    }

    fn poll_put(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_idle(cx))?;
        let count = bytes.len().min(CHUNK);
        let mut buffer = self.take_buffer();
        buffer.clear();
        buffer.extend_from_slice(&bytes[..count]);
        let mut write = self.file.write_at(buffer, self.position);
        match Pin::new(&mut write).poll(cx) {
            Poll::Pending => {
                self.state = State::Writing(write, self.position);
                self.position += count as u64;
            }
            Poll::Ready((result, buffer)) => {
                self.state = State::Idle(buffer, 0..0);
                self.position += written(&result);
                whole(result, count)?;
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.state {
            State::Writing(..) => self.poll_idle(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_move(&mut self, cx: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        ready!(self.poll_written(cx))?;
        let (from, distance) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::Current(distance) => (self.position, distance),
            SeekFrom::End(distance) => (ready!(self.poll_size(cx, distance))?, distance),
        };
        let outside = || {
            let what = match distance < 0 {
                true => "the position is before the start of the file",
                false => "the position is beyond the largest offset",
            };
            io::Error::new(io::ErrorKind::InvalidInput, what)
        };
        self.position = from.checked_add_signed(distance).ok_or_else(outside)?;
        // Drop the bytes read ahead, which belong to the old position. The drop of the old state
        // also cancels a read in flight.
        self.state = State::Idle(self.take_buffer(), 0..0);
        Poll::Ready(Ok(self.position))
    }

    /// `distance`: the target of the seek, from the end of the file.
    fn poll_size(&mut self, cx: &mut Context<'_>, distance: i64) -> Poll<io::Result<u64>> {
        if !matches!(self.state, State::Seeking(_, other) if other == distance) {
            let file = self.file.clone();
            self.state = State::Seeking(Box::pin(async move { file.size().await }), distance);
        }
        let State::Seeking(size, _) = &mut self.state else { return Poll::Ready(Ok(0)) };
        let size = ready!(size.as_mut().poll(cx));
        self.state = State::IDLE;
        Poll::Ready(size.map_err(io::Error::from))
    }
}

impl State {
    const IDLE: State = State::Idle(Vec::new(), 0..0);
}

fn written(result: &Result<usize, Error>) -> u64 {
    result.as_ref().map_or(0, |count| *count as u64)
}

fn whole(result: Result<usize, Error>, len: usize) -> io::Result<()> {
    match result {
        Ok(count) if count == len => Ok(()),
        Ok(count) => Err(io::Error::new(
            io::ErrorKind::WriteZero,
            format!("{count} of {len} bytes were written"),
        )),
        Err(error) => Err(error.into()),
    }
}

impl Drop for Cursor {
    /// Lets a write in flight continue, because the cursor has reported it as done.
    fn drop(&mut self) {
        let State::Writing(mut write, at) = mem::replace(&mut self.state, State::IDLE) else {
            return;
        };
        let Some(bytes) = write.withdraw().and_then(Buffers::one) else { return write.detach() };
        // The write still waited for a place among the requests in flight. Its error is lost, as
        // that of a write in flight is.
        let file = self.file.clone();
        self.file.nowait().calls().run(move || {
            let _ = file.file().write_all_at(&bytes, at);
        });
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor at {} of {}", self.position, self.file.file().path().display())
    }
}

#[cfg(feature = "futures-io")]
mod futures {
    use super::{Context, Cursor, Pin, Poll, SeekFrom, io, ready};
    use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};

    impl AsyncRead for Cursor {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            let there = ready!(self.poll_fill(cx))?;
            let count = there.len().min(buffer.len());
            buffer[..count].copy_from_slice(&there[..count]);
            self.take_out(count);
            Poll::Ready(Ok(count))
        }
    }

    impl AsyncBufRead for Cursor {
        fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            self.get_mut().poll_fill(cx)
        }

        fn consume(mut self: Pin<&mut Self>, amount: usize) {
            self.take_out(amount);
        }
    }

    impl AsyncWrite for Cursor {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_put(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_written(cx)
        }

        fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_written(cx)
        }
    }

    impl AsyncSeek for Cursor {
        fn poll_seek(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            to: SeekFrom,
        ) -> Poll<io::Result<u64>> {
            self.poll_move(cx, to)
        }
    }
}

#[cfg(feature = "tokio")]
mod tokio {
    use super::{Context, Cursor, Pin, Poll, SeekFrom, io, ready};
    use ::tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

    impl AsyncRead for Cursor {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let there = ready!(self.poll_fill(cx))?;
            let count = there.len().min(buffer.remaining());
            buffer.put_slice(&there[..count]);
            self.take_out(count);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncBufRead for Cursor {
        fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            self.get_mut().poll_fill(cx)
        }

        fn consume(mut self: Pin<&mut Self>, amount: usize) {
            self.take_out(amount);
        }
    }

    impl AsyncWrite for Cursor {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_put(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_written(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_written(cx)
        }
    }

    impl AsyncSeek for Cursor {
        fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
            self.seek = Some(to);
            Ok(())
        }

        fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
            let Some(to) = self.seek else { return Poll::Ready(Ok(self.position)) };
            let moved = ready!(self.poll_move(cx, to));
            self.seek = None;
            Poll::Ready(moved)
        }
    }
}
