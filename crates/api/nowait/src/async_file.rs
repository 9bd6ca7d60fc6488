//! Open files whose requests are futures.

use crate::{
    Buffers, Error, File, IoBuffer, IoBufferMut, Nowait, OpenOptions,
    operation::{FileSync, Operation, Transfer, VectoredTransfer},
    request::{Request, readable, writable},
};
use core::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};
use nowait_block::Segments;
use nowait_file::Kind;
use nowait_sys::Errno;
use std::{
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

/// A [`File`] whose requests are futures, for every executor. Cheap to clone: all clones are the
/// same open file.
///
/// Transfers and syncs start as those of a [`Queue`](crate::Queue) do: a request on cached data is
/// mostly over in the first poll, any other request wakes the task when it ends. A helper thread
/// makes the calls that block: open, close, truncate, and the size of an uncached file. If there is
/// no helper thread and none can be started, such a call blocks the poll. Requests that overlap on
/// one buffered file, at least one of them a write, take effect in the order of their first polls.
///
/// ```
/// # fn main() -> Result<(), nowait::Error> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("file");
/// # futures_lite::future::block_on(async {
/// use nowait::{AsyncFile, Nowait};
///
/// let nowait = Nowait::new()?;
/// let file = AsyncFile::create(&nowait, &path).await?;
/// let (written, buffer) = file.write_at(b"durable".to_vec(), 0).await;
/// assert_eq!((written?, &buffer[..]), (7, &b"durable"[..]));
/// file.sync_data().await?;
///
/// let file = AsyncFile::open(&nowait, &path).await?;
/// let (count, buffer) = file.read_at(vec![0; 16], 3).await;
/// assert_eq!(&buffer[..count?], b"able");
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncFile(
    /// `None` only while the handle is being closed or dropped.
    Option<File>,
);

impl Clone for AsyncFile {
    fn clone(&self) -> AsyncFile {
        AsyncFile::from(self.file().clone())
    }
}

impl From<File> for AsyncFile {
    fn from(file: File) -> AsyncFile {
        AsyncFile(Some(file))
    }
}

impl AsyncFile {
    /// Opens an existing file for reading, in the default cache mode.
    ///
    /// # Errors
    /// The errors of open(2).
    pub async fn open(nowait: &Nowait, path: impl AsRef<Path>) -> Result<AsyncFile, Error> {
        OpenOptions::new().read(true).open_async(nowait, path).await
    }

    /// Creates the file, or empties an existing one, and opens it for writing in the default cache
    /// mode.
    ///
    /// # Errors
    /// The errors of open(2).
    pub async fn create(nowait: &Nowait, path: impl AsRef<Path>) -> Result<AsyncFile, Error> {
        OpenOptions::new().write(true).create(true).truncate(true).open_async(nowait, path).await
    }

    /// Returns the file, for blocking requests, queues, its alignment and loans.
    pub fn file(&self) -> &File {
        // Only `drop` and `close` take the file out of the option.
        self.0.as_ref().expect("an open file")
    }

    pub(crate) fn nowait(&self) -> &Nowait {
        self.file().nowait()
    }

    /// Reads at `offset` into the whole of `buffer`. Reads fewer bytes if the file ends, if the
    /// following bytes cannot be read, or if `buffer` is longer than 2 GiB less 4 KiB.
    ///
    /// Errors of the result: as [`File::read_at`], `ECANCELED`, `ETIMEDOUT`.
    pub fn read_at<B: IoBufferMut + Send>(&self, buffer: B, offset: u64) -> Transfer<B> {
        let request = Request::on(self.file(), Kind::Read, Buffers::One(buffer), offset, ());
        Operation::new(self.nowait(), request, writable, one)
    }

    /// Writes `buffer` at `offset`. The number of bytes written may be below the length of
    /// `buffer`.
    ///
    /// Errors of the result: as [`File::write_at`], `ECANCELED`, `ETIMEDOUT`.
    pub fn write_at<B: IoBuffer + Send>(&self, buffer: B, offset: u64) -> Transfer<B> {
        let request = Request::on(self.file(), Kind::Write, Buffers::One(buffer), offset, ());
        Operation::new(self.nowait(), request, readable, one)
    }

    /// Reads at `offset` into several buffers, one after another.
    ///
    /// Errors of the result: as [`AsyncFile::read_at`]; `EINVAL`: more than 1024 buffers.
    pub fn read_vectored_at<B: IoBufferMut + Send>(
        &self,
        buffers: Vec<B>,
        offset: u64,
    ) -> VectoredTransfer<B> {
        let request = Request::on(self.file(), Kind::Read, Buffers::Many(buffers), offset, ());
        Operation::new(self.nowait(), request, writable, many)
    }

    /// Writes several buffers, one after another, at `offset`.
    ///
    /// Errors of the result: as [`AsyncFile::write_at`]; `EINVAL`: more than 1024 buffers.
    pub fn write_vectored_at<B: IoBuffer + Send>(
        &self,
        buffers: Vec<B>,
        offset: u64,
    ) -> VectoredTransfer<B> {
        let request = Request::on(self.file(), Kind::Write, Buffers::Many(buffers), offset, ());
        Operation::new(self.nowait(), request, readable, many)
    }

    /// Fills `buffer`, of at most 2 GiB less 4 KiB, from `offset` by one read.
    ///
    /// # Errors
    /// The errors of [`AsyncFile::read_at`]; `ENODATA`, of the kind `UnexpectedEof`: the read was
    /// short, mostly because the file ends.
    pub async fn read_exact_at<B: IoBufferMut + Send>(
        &self,
        buffer: B,
        offset: u64,
    ) -> (Result<(), Error>, B) {
        let len = buffer.len();
        let (result, buffer) = self.read_at(buffer, offset).await;
        let whole = result.and_then(|count| {
            if count == len {
                return Ok(());
            }
            let error = self.file().refused(Kind::Read, Errno::NODATA, len as u64, offset);
            Err(error.because(format!("the file ends after {count} bytes of this read")))
        });
        (whole, buffer)
    }

    /// Writes the whole of `buffer`, of at most 2 GiB less 4 KiB, at `offset` by one write.
    ///
    /// # Errors
    /// The errors of [`AsyncFile::write_at`]; `EIO`: the write was short, without an error.
    pub async fn write_all_at<B: IoBuffer + Send>(
        &self,
        buffer: B,
        offset: u64,
    ) -> (Result<(), Error>, B) {
        let len = buffer.len();
        let (result, buffer) = self.write_at(buffer, offset).await;
        let whole = result.and_then(|count| match count == len {
            true => Ok(()),
            false => Err(self.file().refused(Kind::Write, Errno::IO, len as u64, offset)),
        });
        (whole, buffer)
    }

    /// Makes data and metadata durable. Covers the writes that were polled before the sync.
    ///
    /// Errors of the result: as [`File::sync_all`], `ECANCELED`, `ETIMEDOUT`.
    pub fn sync_all(&self) -> FileSync {
        self.sync(Kind::Fsync)
    }

    /// Makes the data durable, and the metadata needed to read them. Covers the writes that were
    /// polled before the sync.
    ///
    /// Errors of the result: as [`File::sync_data`], `ECANCELED`, `ETIMEDOUT`.
    pub fn sync_data(&self) -> FileSync {
        self.sync(Kind::Fdatasync)
    }

    /// Makes `len` bytes from `offset` on durable, and the metadata needed to read them; with `len`
    /// 0 everything from `offset` on. Covers the writes to these bytes that were polled before the
    /// sync. See [`File::sync_range`].
    ///
    /// Errors of the result: as [`AsyncFile::sync_data`]; `EINVAL`: `offset` is one that no file
    /// can have.
    pub fn sync_range(&self, offset: u64, len: u64) -> FileSync {
        self.sync_by(Request::sync_of_range(self.file(), offset, len, ()))
    }

    fn sync(&self, kind: Kind) -> FileSync {
        self.sync_by(Request::on(self.file(), kind, Buffers::None, 0, ()))
    }

    fn sync_by(&self, request: Request<(), ()>) -> FileSync {
        Operation::new(self.nowait(), request, |_| Segments::NONE, |result, _| result.map(drop))
    }

    /// Returns the size in bytes; 0 for devices.
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub async fn size(&self) -> Result<u64, Error> {
        if self.file().opened_cached().is_some() {
            return self.file().size();
        }
        self.call(File::size).await
    }

    /// Cuts the file off at `bytes`, or extends it with zeroes. A helper thread makes the call,
    /// even if the future is dropped after its first poll.
    ///
    /// # Errors
    /// The errors of ftruncate(2); `EINVAL` also if the file is not open for writing.
    pub async fn set_len(&self, bytes: u64) -> Result<(), Error> {
        self.call(move |file| file.set_len(bytes)).await
    }

    /// Closes this handle as [`File::close`] does, on a helper thread. Dropping the handle also
    /// closes it, and reports an error on the standard error; in the mode
    /// [`CacheMode::User`](crate::CacheMode::User) a helper thread then writes the data back.
    ///
    /// # Errors
    /// The errors of [`File::close`].
    pub async fn close(mut self) -> Result<(), Error> {
        let Some(file) = self.0.take() else { return Ok(()) };
        let nowait = file.nowait().clone();
        if nowait.is_the_parents() {
            return file.close();
        }
        aside(&nowait, PARENTS_FILE, move || file.close()).await
    }

    /// Makes a reader and writer of a stream of bytes that begins at `position`.
    #[cfg(any(feature = "futures-io", feature = "tokio"))]
    pub fn cursor(&self, position: u64) -> crate::Cursor {
        crate::Cursor::new(self.clone(), position)
    }

    async fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let file = self.file().clone();
        let nowait = file.nowait().clone();
        aside(&nowait, PARENTS_FILE, move || work(&file)).await
    }
}

impl Drop for AsyncFile {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            file.release();
        }
    }
}

impl AsFd for AsyncFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file().as_fd()
    }
}

impl OpenOptions {
    /// Opens as [`OpenOptions::open`] does, on a helper thread. If the future is dropped while the
    /// call runs, the helper thread closes the file.
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`].
    pub async fn open_async(
        &self,
        nowait: &Nowait,
        path: impl AsRef<Path>,
    ) -> Result<AsyncFile, Error> {
        let refused = "cannot open a file in a forked child with the engine of its parent";
        let (options, path): (OpenOptions, PathBuf) = (self.clone(), path.as_ref().to_owned());
        let engine = nowait.clone();
        let open = move || options.open(&engine, path);
        aside(nowait, refused, open).await.map(AsyncFile::from)
    }
}

const PARENTS_FILE: &str = "cannot use a file of the parent process in a forked child";

/// Runs `work` on a helper thread. In a forked child, which has no helper threads of this engine,
/// fails with `EINVAL` and the text `refused`, even if the call began before the fork.
async fn aside<R: Send + 'static>(
    nowait: &Nowait,
    refused: &'static str,
    work: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let mut call = (!nowait.is_the_parents()).then(|| nowait.calls().start(work));
    poll_fn(|cx| match &mut call {
        Some(call) if !nowait.is_the_parents() => Pin::new(call).poll(cx),
        _ => Poll::Ready(Err(Error::new(Errno::INVAL, refused))),
    })
    .await
}

pub(crate) fn one<B>(
    result: Result<usize, Error>,
    buffers: Buffers<B>,
) -> (Result<usize, Error>, B) {
    (result, buffers.one().expect("a request with one buffer"))
}

pub(crate) fn many<B>(
    result: Result<usize, Error>,
    buffers: Buffers<B>,
) -> (Result<usize, Error>, Vec<B>) {
    (result, buffers.many().expect("a request with several buffers"))
}
