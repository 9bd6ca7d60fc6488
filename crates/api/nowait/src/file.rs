//! Open files, and blocking requests on them.

use crate::{
    CacheMode, Error, Lent, Nowait, OpenOptions, align::Alignment, error, open::Access,
    request::bounded,
};
use nowait_block::Segments;
use nowait_cache::{OpenFile, SyncLevel};
use nowait_engine::report;
use nowait_file::{
    Ahead, Command, InodeKey, Kind, Lookahead, Opened, UserFile, UserHandle, UserOperation, Writer,
    command::{Flags, LEN_MAX},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    file::{self, Advice, IOV_MAX, IoVec},
};
use std::{
    fmt, fs,
    io::{IoSlice, IoSliceMut},
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::Path,
    sync::Arc,
};

/// An open file of an engine. Cheap to clone: all clones are the same open file. The file closes
/// when the last clone is dropped; each request of a [`Queue`](crate::Queue) on the file holds a
/// clone until the program pops the request.
///
/// A file has no position: every request names its offset. The requests of this type's methods
/// block, and continue after a signal; several threads may make requests at the same time. The
/// engine does not order reads, writes and syncs of this type with requests in flight in a queue.
#[derive(Clone)]
pub struct File(Arc<Open>);

struct Open {
    file: fs::File,
    path: Box<Path>,
    flags: Flags,
    access: Access,
    alignment: Option<Alignment>,
    user: Option<UserHandle>,
    /// Set by [`File::open_there`]: keeps the file open for writing in the page cache of nowait.
    writes: Mutex<Option<Writer>>,
    key: InodeKey,
    /// Readahead state of this open of a cached file.
    reads: Arc<OpenFile>,
    nowait: Nowait,
    has_ended: bool,
}

impl File {
    /// Opens an existing file for reading, in the default cache mode. Blocks, as open(2) does.
    ///
    /// # Errors
    /// The errors of open(2).
    pub fn open(nowait: &Nowait, path: impl AsRef<Path>) -> Result<File, Error> {
        OpenOptions::new().read(true).open(nowait, path)
    }

    /// Creates the file, or empties an existing one, and opens it for writing in the default cache
    /// mode.
    ///
    /// # Errors
    /// The errors of open(2).
    pub fn create(nowait: &Nowait, path: impl AsRef<Path>) -> Result<File, Error> {
        OpenOptions::new().write(true).create(true).truncate(true).open(nowait, path)
    }

    pub(crate) fn from_parts(
        nowait: &Nowait,
        file: fs::File,
        path: &Path,
        (flags, key): (Flags, InodeKey),
        access: Access,
        alignment: Option<Alignment>,
        user: Option<UserHandle>,
    ) -> File {
        let (path, nowait, reads) = (path.into(), nowait.clone(), UserFile::new_open());
        nowait.engine().count_open(key);
        let has_ended = false;
        File(Arc::new(Open {
            file,
            path,
            flags,
            access,
            alignment,
            user,
            writes: Mutex::new(None),
            key,
            reads,
            nowait,
            has_ended,
        }))
    }

    /// Returns the path that was given to open.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the alignment of direct requests on this file; `None`: requests need none.
    pub fn alignment(&self) -> Option<Alignment> {
        self.0.alignment
    }

    /// Returns the size in bytes; 0 for devices.
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub fn size(&self) -> Result<u64, Error> {
        if let Some(user) = self.user() {
            return Ok(user.cached().size());
        }
        let size = self.0.file.metadata().map(|metadata| metadata.len());
        size.map_err(|error| self.failed("size", &error))
    }

    /// Cuts the file off at `bytes`, or extends it with zeroes.
    ///
    /// # Errors
    /// The errors of ftruncate(2); `EINVAL` also if the file is not open for writing.
    pub fn set_len(&self, bytes: u64) -> Result<(), Error> {
        self.cut(bytes)
            .map_err(|errno| Error::new(errno, format!("set_len of {}", self.path().display())))
    }

    fn cut(&self, bytes: u64) -> Result<(), Errno> {
        let cached = |user: &Arc<UserFile>| match self.0.access.write {
            true => self.open_there(user).and_then(|()| user.set_len(self.engine(), bytes)),
            false => Err(Errno::INVAL),
        };
        self.change(cached, || {
            self.0.file.set_len(bytes).map_err(|error| {
                error.raw_os_error().map_or(Errno::INVAL, Errno::new) // beyond the largest file
            })
        })
    }

    /// Opens the file for writing in the page cache of nowait, if this handle is in another mode
    /// than `User` and another handle has the file in `User`.
    fn open_there(&self, user: &Arc<UserFile>) -> Result<(), Errno> {
        if self.0.user.is_some() {
            return Ok(());
        }
        let mut writes = self.0.writes.lock();
        if writes.as_ref().is_none_or(|writer| !writer.is_of(user)) {
            *writes = Some(user.write_through(self.engine(), self.fd())?);
        }
        Ok(())
    }

    /// Changes the file through the page cache if the cache has it; otherwise by `kernel`. An open
    /// in the page cache that begins meanwhile waits for the end of the change.
    pub(crate) fn change<T>(
        &self,
        cached: impl Fn(&Arc<UserFile>) -> T,
        kernel: impl Fn() -> T,
    ) -> T {
        loop {
            if let Some(user) = self.user() {
                return cached(&user);
            }
            if let Some(changed) = self.engine().past_cache(self.0.key, &kernel) {
                return changed;
            }
        }
    }

    /// Empties a regular file that was just opened for writing; leaves other files as they are, as
    /// O_TRUNC does.
    pub(crate) fn empty(&self) -> Result<(), Errno> {
        let stat = file::stat(self.fd())?;
        let has_bytes = stat.size != 0 || self.user().is_some_and(|user| user.cached().size() != 0);
        if stat.is_regular() && has_bytes { self.cut(0) } else { Ok(()) }
    }

    /// Makes data and metadata durable.
    ///
    /// # Errors
    /// The errors of fsync(2); `EIO`: data written before is lost.
    pub fn sync_all(&self) -> Result<(), Error> {
        if let Some(user) = self.user() {
            return self.sync_cached(&user, SyncLevel::All);
        }
        self.0.file.sync_all().map_err(|error| self.failed("sync_all", &error))
    }

    /// Makes the data durable, and the metadata needed to read them.
    ///
    /// # Errors
    /// The errors of fdatasync(2); `EIO`: data written before is lost.
    pub fn sync_data(&self) -> Result<(), Error> {
        if let Some(user) = self.user() {
            return self.sync_cached(&user, SyncLevel::Data);
        }
        self.0.file.sync_data().map_err(|error| self.failed("sync_data", &error))
    }

    /// Makes `len` bytes from `offset` on durable, and the metadata needed to read them; with `len`
    /// 0 everything from `offset` on. If the file is not in the page cache of nowait, syncs the
    /// whole file.
    ///
    /// # Errors
    /// The errors of [`File::sync_data`].
    pub fn sync_range(&self, offset: u64, len: u64) -> Result<(), Error> {
        match self.user() {
            Some(user) => {
                self.run_sync(UserOperation::sync_range(&user, offset, len), Kind::Fdatasync)
            }
            None => self.sync_data(),
        }
    }

    fn sync_cached(&self, user: &Arc<UserFile>, durable: SyncLevel) -> Result<(), Error> {
        let kind = if durable == SyncLevel::All { Kind::Fsync } else { Kind::Fdatasync };
        self.run_sync(UserOperation::sync(user, durable), kind)
    }

    fn run_sync(&self, sync: UserOperation, kind: Kind) -> Result<(), Error> {
        let synced = sync.run(self.0.nowait.engine());
        synced.map(drop).map_err(|errno| self.refused(kind, errno, 0, 0))
    }

    /// Reads at `offset`; returns the number of bytes read. The number is below the length of
    /// `buffer` if the file ends, if the following bytes cannot be read, or if `buffer` is longer
    /// than 2 GiB less 4 KiB.
    ///
    /// # Errors
    /// `EBADF`: not open for reading. `EINVAL`: not aligned as direct I/O needs it. The errors of
    /// pread(2).
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.read_vectored_at(&mut [IoSliceMut::new(buffer)], offset)
    }

    /// Lends the bytes at `offset`, up to `len` and the end of the file, without a copy. The file
    /// must be in the page cache (see [`CacheMode::User`]) with all of these bytes. `None`: some
    /// bytes are missing, or a write is changing them; read them instead.
    ///
    /// Writes to these pages wait until the guard is dropped: do not wait for such a write before
    /// you drop the guard. The pages stay in memory, so lend little and not for long.
    /// # Errors
    /// `EBADF`: not open for reading. `EINVAL`: `offset` is one that no file can have, or not
    /// aligned as direct I/O needs it.
    pub fn lend(&self, offset: u64, len: usize) -> Result<Option<Lent>, Error> {
        self.check(Kind::Read, &[], offset)?;
        Ok(self.user().and_then(|user| user.cached().pin_range(offset, len)).map(Lent::new))
    }

    /// Lends many ranges, offset and length each, as [`File::lend`] lends one: calls `each` with
    /// the index of the range and its loan. Faster than one [`File::lend`] for each range, because
    /// the processor fetches the next ranges from memory meanwhile.
    ///
    /// # Errors
    /// The errors of [`File::lend`]. After an error no range is lent.
    pub fn lend_each(
        &self,
        ranges: &[(u64, usize)],
        mut each: impl FnMut(usize, Option<Lent>),
    ) -> Result<(), Error> {
        for (offset, _) in ranges {
            self.check(Kind::Read, &[], *offset)?;
        }
        let Some(user) = self.user() else {
            (0..ranges.len()).for_each(|index| each(index, None));
            return Ok(());
        };
        let transfer = |&(offset, len): &(u64, usize)| Some((user.as_ref(), offset, len));
        let mut lookahead = Lookahead::of(Ahead::Look);
        lookahead.look(ranges.iter().map(transfer));
        for (index, (offset, len)) in ranges.iter().enumerate() {
            lookahead.step(index, |index| ranges.get(index).and_then(transfer));
            each(index, user.cached().pin_range(*offset, *len).map(Lent::new));
        }
        Ok(())
    }

    /// Announces how the program will use the bytes of `range`, so that the cache reads ahead or
    /// stops reading ahead. The advice changes no result. If the file is in the page cache of the
    /// engine, the call does not wait for the disk.
    ///
    /// [`Advice::Normal`], `Random` and `Sequential` apply to the whole open file, whatever the
    /// range. If the kernel caches the file, an advice for an empty range has no effect.
    /// # Errors
    /// The errors of posix_fadvise(2).
    pub fn advise(&self, range: Range<u64>, advice: Advice) -> Result<(), Error> {
        if let Some(user) = self.user() {
            self.open_of(&user).advise(self.0.nowait.engine(), range, advice);
            return Ok(());
        }
        let len = range.end.saturating_sub(range.start);
        if len == 0 {
            return Ok(()); // to the kernel an empty range would mean everything
        }
        file::advise(self.fd(), range.start, len.min(i64::MAX as u64), advice)
            .map_err(|errno| Error::new(errno, format!("advise on {}", self.path().display())))
    }

    /// Fills the buffer from `offset`.
    ///
    /// # Errors
    /// The errors of [`File::read_at`]; `ENODATA`, of the kind `UnexpectedEof`: the file ends
    /// early.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        let whole_blocks = self.0.alignment.map_or(1, |alignment| alignment.offset);
        let mut done = 0;
        while done < buffer.len() {
            let bytes = self.read_at(&mut buffer[done..], offset + done as u64)?;
            done += bytes;
            // A direct read that stops inside a block has reached the end of the file.
            if bytes == 0 || (done < buffer.len() && bytes % whole_blocks != 0) {
                let error = self.refused(Kind::Read, Errno::NODATA, buffer.len() as u64, offset);
                return Err(error.because(format!("the file ends after {done} bytes of this read")));
            }
        }
        Ok(())
    }

    /// Writes at `offset`; returns the number of bytes written.
    ///
    /// # Errors
    /// `EBADF`: not open for writing. `EINVAL`: not aligned as direct I/O needs it. `ENOSPC` and
    /// the other errors of pwrite(2).
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.write_vectored_at(&[IoSlice::new(bytes)], offset)
    }

    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    /// The errors of [`File::write_at`]; a part may have been written. `EIO`: the kernel wrote
    /// nothing, without an error.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(&bytes[done..], offset + done as u64)? {
                0 => return Err(self.refused(Kind::Write, Errno::IO, bytes.len() as u64, offset)),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Reads into several buffers, one after another, as [`File::read_at`] does into one.
    ///
    /// # Errors
    /// The errors of [`File::read_at`]; `EINVAL`: more than 1024 buffers.
    pub fn read_vectored_at(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<usize, Error> {
        // SAFETY: an IoSliceMut is laid out as the kernel's iovec (its documentation), as an
        // IoVec is.
        let segments =
            unsafe { core::slice::from_raw_parts(buffers.as_ptr().cast::<IoVec>(), buffers.len()) };
        self.transfer(Kind::Read, segments, offset, |fd, offset| {
            // SAFETY: the segments are exclusively borrowed memory.
            unsafe { file::preadv2(fd, segments, offset, 0) }
        })
    }

    /// Writes several buffers, one after another, as [`File::write_at`] does one.
    ///
    /// # Errors
    /// The errors of [`File::write_at`]; `EINVAL`: more than 1024 buffers.
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize, Error> {
        // SAFETY: an IoSlice is laid out as the kernel's iovec (its documentation), as an IoVec is.
        let segments =
            unsafe { core::slice::from_raw_parts(buffers.as_ptr().cast::<IoVec>(), buffers.len()) };
        self.transfer(Kind::Write, segments, offset, |fd, offset| {
            // SAFETY: the segments are borrowed memory.
            unsafe { file::pwritev2(fd, segments, offset, 0) }
        })
    }

    fn transfer(
        &self,
        kind: Kind,
        segments: &[IoVec],
        offset: u64,
        call: impl Fn(i32, i64) -> Result<usize, Errno>,
    ) -> Result<usize, Error> {
        let signed = self.check(kind, segments, offset)?;
        let cached = |user: &Arc<UserFile>| self.transfer_cached(user, kind, segments, signed);
        let kernel = || {
            loop {
                match call(self.fd(), signed) {
                    Err(Errno::INTR) => {}
                    result => return result,
                }
            }
        };
        let done = match kind {
            Kind::Write => self.change(cached, kernel),
            _ => self.user().map_or_else(kernel, |user| cached(&user)),
        };
        done.map_err(|errno| self.refused(kind, errno, sum(segments), offset))
    }

    /// Runs, on the calling thread, the operation that a queue would run for the same request.
    fn transfer_cached(
        &self,
        user: &Arc<UserFile>,
        kind: Kind,
        segments: &[IoVec],
        offset: i64,
    ) -> Result<usize, Errno> {
        if kind == Kind::Write {
            self.open_there(user)?;
        }
        let segments = bounded(match segments {
            [one] => Segments::One(*one),
            many => Segments::Many(many.into()),
        });
        let file = (-1, self.0.flags);
        // SAFETY: the caller borrows the segments, exclusively for a read, and `run` returns only
        // when nothing accesses them any more.
        let command = unsafe { Command::new(kind, file, segments, offset) };
        // SAFETY: as above.
        let operation = unsafe { UserOperation::of(self.open_of(user), &command) }?;
        operation.run(self.0.nowait.engine()).map(|bytes| bytes as usize)
    }

    /// Returns the offset as the signed number that the kernel takes.
    pub(crate) fn check(&self, kind: Kind, segments: &[IoVec], offset: u64) -> Result<i64, Error> {
        let refused = |errno, reason: String| {
            Err(self.refused(kind, errno, sum(segments), offset).because(reason))
        };
        let Access { read, write } = self.0.access;
        match kind {
            Kind::Read if !read => {
                return refused(Errno::BADF, "the file is not open for reading".to_owned());
            }
            Kind::Write if !write => {
                return refused(Errno::BADF, "the file is not open for writing".to_owned());
            }
            _ => {}
        }
        if segments.len() > IOV_MAX {
            return refused(Errno::INVAL, format!("at most {IOV_MAX} buffers"));
        }
        if let Some(Err(reason)) = self.0.alignment.map(|a| a.check(offset, segments)) {
            return refused(Errno::INVAL, reason);
        }
        match i64::try_from(offset) {
            Ok(signed) if signed.checked_add(LEN_MAX as i64).is_some() => Ok(signed),
            _ => refused(
                Errno::INVAL,
                "the offset is larger than the largest file offset".to_owned(),
            ),
        }
    }

    pub(crate) fn refused(&self, kind: Kind, errno: Errno, len: u64, offset: u64) -> Error {
        let path = self.path();
        let doing = match kind {
            Kind::Read => error::transfer("read", len, offset, path),
            Kind::Write => error::transfer("write", len, offset, path),
            Kind::Fsync => format!("sync_all of {}", path.display()),
            Kind::Fdatasync => format!("sync_data of {}", path.display()),
            Kind::Poll(_) => format!("poll of {}", path.display()),
        };
        Error::new(errno, doing)
    }

    pub(crate) fn engine(&self) -> &Arc<nowait_file::Engine> {
        self.0.nowait.engine()
    }

    fn failed(&self, doing: &str, error: &std::io::Error) -> Error {
        Error::from_io(error, format!("{doing} of {}", self.path().display()))
    }

    /// Closes this handle. If other clones of this handle exist, does nothing else. If this open
    /// was the last one of a cached file, or the last one that may write it, the call first writes
    /// back the data that are only in nowait's page cache, which blocks, and waits at most a second
    /// until the engine has closed its own reference. Dropping the handle does the same, and
    /// reports an error on the standard error.
    ///
    /// # Errors
    /// The error of writing cached data to the file, in this call or before; that data is lost.
    /// `Ok` if clones of this handle, or requests on it in a queue or a future, keep it open.
    pub fn close(self) -> Result<(), Error> {
        let Some(mut open) = Arc::into_inner(self.0) else { return Ok(()) };
        let closed = open.end();
        closed.map_err(|errno| Error::new(errno, format!("close of {}", open.path.display())))
    }

    #[doc(hidden)]
    pub fn nowait(&self) -> &Nowait {
        &self.0.nowait
    }

    /// Drops this handle. If it is the last clone of an open in the mode `User`, a helper thread
    /// writes the file back and closes it, so that the caller does not block.
    pub(crate) fn release(self) {
        let is_cached = self.0.user.is_some() && !self.0.nowait.is_the_parents();
        // `into_inner` returns the value to exactly one of two threads that drop it at once.
        if let Some(last) = Arc::into_inner(self.0).filter(|_| is_cached) {
            let nowait = last.nowait.clone();
            nowait.calls().bury(last);
        }
    }

    pub(crate) fn fd(&self) -> i32 {
        self.0.file.as_raw_fd()
    }

    /// Returns the page cache's entry of the file, if this handle or another open of the same file
    /// is in the mode `User`: that open must see the changes made here. If another open in the mode
    /// `User` has begun, waits until it is over.
    pub(crate) fn user(&self) -> Option<Arc<UserFile>> {
        self.0.user.as_ref().map(|user| user.file().clone()).or_else(|| {
            let user = self.engine().cached(self.fd())?;
            user.wait_until_open(self.engine());
            Some(user)
        })
    }

    pub(crate) fn opened_cached(&self) -> Option<Opened<'_>> {
        self.0.user.as_ref().map(|user| self.open_of(user.file()))
    }

    fn open_of<'a>(&'a self, file: &'a Arc<UserFile>) -> Opened<'a> {
        Opened { file, reads: &self.0.reads }
    }

    pub(crate) fn flags(&self) -> Flags {
        self.0.flags
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = &self.0;
        let cache = match (&open.user, open.alignment) {
            (Some(_), _) => CacheMode::User,
            (None, Some(_)) => CacheMode::Direct,
            (None, None) => CacheMode::Host,
        };
        f.debug_struct("File")
            .field("path", &open.path)
            .field("fd", &self.fd())
            .field("cache", &cache)
            .field("access", &open.access)
            .finish_non_exhaustive()
    }
}

impl Open {
    /// The last open of a cached file writes back unsynced data. A second call does nothing.
    fn end(&mut self) -> Result<(), Errno> {
        if core::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        if self.nowait.is_the_parents() {
            // A thread of the parent may have held a lock of the counts or of the page cache at the
            // fork. The drop of the last reference to a cached file would take the latter.
            core::mem::forget(self.user.take());
            return Ok(());
        }
        let engine = self.nowait.engine();
        let is_last = engine.count_close(self.key);
        let written = self.writes.get_mut().take().map_or(Ok(()), |writer| writer.end(engine));
        let closed = match self.user.take() {
            Some(user) => user.close(engine, is_last),
            // This handle may have written through the page cache while another open was in the
            // mode `User`.
            None if is_last => match engine.cached(self.file.as_raw_fd()) {
                Some(user) => user.write_back_at_close(engine, true),
                None => Ok(()),
            },
            None => Ok(()),
        };
        written.and(closed)
    }
}

impl Drop for Open {
    /// Reports on the standard error the error that [`File::close`] would have returned.
    fn drop(&mut self) {
        if let Err(errno) = self.end() {
            report::tell_lost(&self.path, errno);
        }
    }
}

fn sum(segments: &[IoVec]) -> u64 {
    segments.iter().map(|segment| segment.len as u64).sum()
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test counts instead of holding one of the cache's locks in another thread, because the
    /// cache calls no function of its users under a lock.
    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_forked_child_that_closes_a_file_does_not_enter_the_page_cache() {
        let nowait = Nowait::new().unwrap();
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [1; 8192]).unwrap();
        let file = File::open(&nowait, &path).unwrap();
        file.read_exact_at(&mut [0; 8192], 0).unwrap();
        let user = file.user().unwrap();
        while Arc::strong_count(user.cached()) > 1 {
            std::thread::yield_now(); // until the thread that ended the read has dropped the file
        }
        drop(user);
        let cache = nowait.engine().cache().unwrap();
        let nodes = cache.tree_nodes();
        assert_ne!(nodes, 0);
        // SAFETY: the child takes no lock that another thread may hold, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_closed = file.close().is_ok() && cache.tree_nodes() == nodes;
            // SAFETY: ends the child without running destructors or exit handlers.
            unsafe { libc::_exit(i32::from(!is_closed)) };
        }
        let mut status = -1;
        // SAFETY: a live local; a child that was not waited for.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has dropped the pages of the file");
    }
}
