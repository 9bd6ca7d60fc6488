//! User files: cached by the engine's own page cache, past the kernel's.
//!
//! ```text
//! UserFile       one for each inode: the cached file, and its own two opens
//! UserOperation  a read, write or sync of it, run by a request or by a thread that parks
//! ```
//! Coherent between all opens in the process that go through here. Towards others it is
//! close-to-open: an open looks whether the file has changed, a sync or the last close writes.

use crate::{
    Command, Context, Engine, Kind,
    engine::section::Section,
    exclusion::{leave, wait_for_turn},
    hold::{self, HeldFd},
    inode_marks::{InodeMarks, Mark},
    kept::Kept,
    kernel_writes::{KernelWrite, KernelWrites, UnknownWrite},
    order::{Access, InodeKey},
    parker::{Parker, sleep_through},
};
use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Release},
};
use nowait_block::{Bio, Segments, bio::Descriptor};
use nowait_cache::{
    Backing, CachedFile, Change, FRAME_BYTES, OpenFile, ReadOperation, SyncLevel, SyncOperation,
    Target, WriteOperation, WriteStart, copy::User, readahead::Advice as Pattern,
};
use nowait_retry::{Step, WaitEntry};
use nowait_sys::mutex::{Mutex, MutexGuard};
use nowait_sys::{
    Errno, Fd,
    file::{self, Advice, O_DIRECT, O_RDONLY, O_RDWR, Version},
    mistake::{self, Mistake},
};
use rustc_hash::FxHashMap;
use std::{
    ops::Range,
    sync::{Arc, Weak},
    task::Waker,
};

/// Alignment of direct requests: that of frames suits every device.
const BLOCK_BYTES: u32 = 4096;

/// Longest readahead window, in pages: 2 MiB keep a device busy that takes 64 KiB requests.
const WINDOW_PAGES_MAX: u32 = 512;

/// A file in the engine's page cache, shared by all its opens in the process.
#[derive(Debug)]
pub struct UserFile {
    key: InodeKey,
    cached: Arc<CachedFile>,
    /// What reading ahead remembers of requests that come without an open of their own; it tells
    /// several streams apart.
    reads: Arc<OpenFile>,
    /// Opens that count themselves; not by references, which requests and the driver have too.
    opens: AtomicUsize,
    writable: bool,
    /// Its blocks go past the kernel's cache.
    direct: bool,
    /// Nothing is cached any more, for as long as it is open.
    given_up: AtomicBool,
    /// The file as it was when its pages were known to be those on disk.
    seen: Mutex<Version>,
    /// Writes past the cache are waited for, which were in flight before.
    is_opening: AtomicBool,
    direct_open: Arc<BothTables>,
    /// For looks at the file itself, too.
    tail: Arc<BothTables>,
    pub(crate) kept: Arc<Kept>,
    /// It is among them; changed under their lock.
    pub(crate) is_kept: AtomicBool,
    /// Plain calls find it by that.
    _mark: Mark,
}

/// A user file as one of its opens: what reading ahead remembers, and what it was advised, is
/// that open's.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    /// The file.
    pub file: &'a Arc<UserFile>,
    /// The state of the open, from [`UserFile::new_open`].
    pub reads: &'a Arc<OpenFile>,
}

impl Opened<'_> {
    /// Takes advice, as posix_fadvise(2), for `range` in bytes; what is to be read ahead, or read
    /// no more, begins at once, and nobody waits for it.
    pub fn advise(&self, engine: &Arc<Engine>, range: Range<u64>, advice: Advice) {
        let (file, reads) = (self.file.cached(), self.reads);
        match advice {
            Advice::Normal => reads.advise(Pattern::Normal),
            Advice::Random => reads.advise(Pattern::Random),
            Advice::Sequential => reads.advise(Pattern::Sequential),
            Advice::WillNeed => {
                let (mut bios, end) = (Vec::new(), range.end.min(file.size()));
                reads.will_need(file, range.start..end, &mut bios);
                engine.carry(&mut bios);
            }
            Advice::DontNeed => reads.forget(file, range),
        }
    }
}

impl<'a> From<&'a Arc<UserFile>> for Opened<'a> {
    /// The open that all share who know the file by a descriptor only.
    fn from(file: &'a Arc<UserFile>) -> Opened<'a> {
        Opened { file, reads: &file.reads }
    }
}

/// A descriptor of ours that works on both sides: in the application's table and the engine's.
#[derive(Debug)]
pub(crate) struct BothTables {
    here: Option<Fd>,
    there: Arc<HeldFd>,
    graves: Arc<Graves>,
}

/// Descriptors in the application's table that were given up on a thread of the engine.
#[derive(Debug, Default)]
pub(crate) struct Graves(Mutex<Vec<Fd>>);

impl Graves {
    /// Closes them; on a thread of the application.
    pub(crate) fn clear(&self) {
        let graves = core::mem::take(&mut *self.0.lock());
        drop(graves);
    }
}

impl Descriptor for BothTables {
    fn number(&self) -> Result<i32, Errno> {
        match (&self.here, hold::in_engine_table()) {
            (Some(here), false) => Ok(here.raw()),
            _ => self.there.number(),
        }
    }
}

impl Drop for BothTables {
    fn drop(&mut self) {
        if let Some(here) = self.here.take().filter(|_| hold::in_engine_table()) {
            self.graves.0.lock().push(here);
        }
    }
}

impl BothTables {
    /// Brings a descriptor of the application's table into the engine's, too.
    pub(crate) fn new(engine: &Engine, here: Fd) -> Result<Arc<BothTables>, Errno> {
        let there = engine.hold_for_good(here.raw())?;
        let graves = engine.users().graves.clone();
        Ok(Arc::new(BothTables { here: Some(here), there, graves }))
    }
}

/// The user files by inode, locked.
type Files<'a> = MutexGuard<'a, FxHashMap<InodeKey, Weak<UserFile>>>;

/// The user files of an engine.
#[derive(Debug, Default)]
pub(crate) struct Users {
    files: Mutex<FxHashMap<InodeKey, Weak<UserFile>>>,
    /// Whether there ever was one: most programs never look further.
    any: AtomicBool,
    marks: Arc<InodeMarks>,
    pub(crate) writes: KernelWrites,
    pub(crate) graves: Arc<Graves>,
    pub(crate) kept: Arc<Kept>,
}

impl Users {
    /// Tells, without a lock, whether an inode may have a user file.
    pub(crate) fn may_have(&self, key: InodeKey) -> bool {
        self.marks.may_have(key)
    }

    /// Tells, without a lock, whether there is a user file.
    pub(crate) fn have_any(&self) -> bool {
        self.marks.have_any()
    }

    /// Returns the user file of the inode behind `fd`, if it is open here.
    pub(crate) fn find(&self, fd: i32) -> Option<Arc<UserFile>> {
        if !self.any.load(Acquire) {
            return None;
        }
        let stat = file::stat(fd).ok()?;
        self.with_key((stat.dev, stat.ino)).filter(|file| !file.is_given_up())
    }

    /// Counts a write to the inode that goes to the kernel, until it ends.
    ///
    /// # Errors
    /// The user file of the inode, which has the write instead.
    pub(crate) fn begin_write(&self, key: InodeKey) -> Result<KernelWrite<'_>, Arc<UserFile>> {
        let write = self.writes.enter(key);
        let open = if self.may_have(key) { self.with_key(key) } else { None };
        match open.filter(|file| !file.is_given_up()) {
            Some(file) => Err(file),
            None => Ok(write),
        }
    }

    /// The same for a write that is over soon, to an inode that was not looked up. `None`: there
    /// are user files, and it may be one of theirs.
    pub(crate) fn begin_unknown(&self, context: &Context) -> Option<UnknownWrite<'_>> {
        let write = self.writes.enter_unknown(context);
        (!self.have_any()).then_some(write)
    }

    /// Returns all that are open.
    pub(crate) fn all(&self) -> Vec<Arc<UserFile>> {
        self.files.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the one with this identity, if it is open.
    pub(crate) fn with_key(&self, key: InodeKey) -> Option<Arc<UserFile>> {
        self.files.lock().get(&key).and_then(Weak::upgrade)
    }
}

impl UserFile {
    /// Opens the file behind `fd` once more, through the page cache; `fd` stays the caller's.
    ///
    /// What is cached of it is dropped if another process has changed it. Waits for the writes in
    /// flight that the engine does past the cache, and may wait for the disk.
    /// # Errors
    /// `EINVAL`: not a regular file. `ENOMEM`: no memory for the page cache. Those of open(2),
    /// and `EAGAIN`: too many files are under way to the engine's threads.
    pub fn open(engine: &Arc<Engine>, fd: i32) -> Result<Arc<UserFile>, Errno> {
        UserFile::open_or(engine, fd, UserFile::open_after_writes)
    }

    /// The same on a thread that submits, and may not wait for what it has submitted.
    ///
    /// # Errors
    /// Those of [`UserFile::open`]. `EBUSY`: a write past the cache is in flight.
    pub fn open_if_idle(engine: &Arc<Engine>, fd: i32) -> Result<Arc<UserFile>, Errno> {
        UserFile::open_or(engine, fd, |_, _, _| Err(Errno::BUSY))
    }

    /// Opens it; `busy` decides where writes past the cache are in flight.
    fn open_or(
        engine: &Arc<Engine>,
        fd: i32,
        busy: impl FnOnce(Arc<UserFile>, &Arc<Engine>, Files<'_>) -> Result<Arc<UserFile>, Errno>,
    ) -> Result<Arc<UserFile>, Errno> {
        engine.users().graves.clear();
        let stat = file::stat(fd)?;
        if !stat.is_regular() {
            return Err(Errno::INVAL);
        }
        let key = (stat.dev, stat.ino);
        // Held to the end: two opens at once must not make two caches of one file.
        let mut files = engine.users().files.lock();
        if let Some(open) = files.get(&key).and_then(Weak::upgrade) {
            drop(files);
            open.wait_until_open(engine);
            open.look_again(engine);
            return Ok(open);
        }
        engine.start_cleaner()?;
        // From here on a write past the cache finds the mark, or is found in flight.
        let mark = engine.users().marks.mark(key);
        let is_idle = engine.users().writes.none_at_all(key) || mistake::makes(Mistake::OpenAtOnce);
        let made = Arc::new(UserFile::make(engine, fd, key, mark)?);
        if !is_idle {
            return busy(made, engine, files);
        }
        made.publish(engine, &mut files);
        Ok(made)
    }

    /// Waits for the writes in flight past the cache; requests that come now wait for that, too.
    fn open_after_writes(
        self: Arc<Self>,
        engine: &Arc<Engine>,
        mut files: Files<'_>,
    ) -> Result<Arc<UserFile>, Errno> {
        self.is_opening.store(true, Release);
        let ticket = engine.orders().enter_open(self.key);
        self.publish(engine, &mut files);
        drop(files);
        let parker = Parker::new();
        let waker = Waker::from(parker.clone());
        engine.users().writes.wait_for_none(self.key, &waker, || parker.sleep(engine));
        let mut look = Change::outside(&self.cached);
        let looked = run_change(engine, &mut look).map(|()| self.take_as_it_is(look));
        self.is_opening.store(false, Release);
        leave(engine, &ticket);
        looked.map(|()| self)
    }

    /// Lets others find it.
    fn publish(self: &Arc<Self>, engine: &Engine, files: &mut Files<'_>) {
        files.retain(|_, file| file.strong_count() > 0);
        files.insert(self.key, Arc::downgrade(self));
        engine.users().any.store(true, Release);
    }

    /// Waits for the end of the open, if that waits for writes.
    pub fn wait_until_open(self: &Arc<Self>, engine: &Arc<Engine>) {
        if self.is_opening.load(Acquire) {
            let ticket = wait_for_turn(engine, self, 0..u64::MAX, Access::Sync);
            leave(engine, &ticket);
        }
    }

    fn make(engine: &Engine, fd: i32, key: InodeKey, mark: Mark) -> Result<UserFile, Errno> {
        // Only now: an earlier cache of the file may have written to it until it ended.
        let version = file::version(fd)?;
        let (tail, writable) = match file::reopen(fd, O_RDWR) {
            Ok(tail) => (tail, true),
            Err(Errno::ACCES | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {
                (file::reopen(fd, O_RDONLY)?, false)
            }
            Err(errno) => return Err(errno),
        };
        let mode = if writable { O_RDWR } else { O_RDONLY };
        let (past_kernel, direct) = match file::reopen(fd, mode | O_DIRECT) {
            // No direct I/O there: through the kernel's cache.
            Err(Errno::INVAL) => (false, file::reopen(fd, mode)?),
            direct => (true, direct?),
        };
        // Out of the way of the numbers that the application's own opens would get.
        let direct = BothTables::new(engine, direct.moved_high())?;
        let tail = BothTables::new(engine, tail.moved_high())?;
        let target = |file: &Arc<BothTables>| Target { fd: -1, file: Some(file.clone()) };
        let backing =
            Backing { direct: target(&direct), tail: target(&tail), block_bytes: BLOCK_BYTES };
        let cached = CachedFile::new(&engine.cache()?, backing, version.stat.size as u64);
        Ok(UserFile {
            key,
            cached,
            reads: UserFile::new_open(),
            opens: AtomicUsize::new(0),
            writable,
            direct: past_kernel,
            given_up: AtomicBool::new(false),
            seen: Mutex::new(version),
            is_opening: AtomicBool::new(false),
            direct_open: direct,
            tail,
            kept: engine.users().kept.clone(),
            is_kept: AtomicBool::new(false),
            _mark: mark,
        })
    }

    /// Makes the state of a new open, see [`Opened`].
    pub fn new_open() -> Arc<OpenFile> {
        Arc::new(OpenFile::new(WINDOW_PAGES_MAX))
    }

    /// Counts an open that will call [`UserFile::leave`].
    pub fn enter(&self) {
        self.opens.fetch_add(1, AcqRel);
    }

    /// Ends an open; true: it was the last one, who writes back what nobody has synced.
    pub fn leave(&self) -> bool {
        self.opens.fetch_sub(1, AcqRel) == 1
    }

    /// Returns the file's pages.
    pub fn cached(&self) -> &Arc<CachedFile> {
        &self.cached
    }

    /// Returns device and inode.
    pub fn key(&self) -> InodeKey {
        self.key
    }

    /// Tells whether its blocks go past the kernel's cache: the file system has direct I/O.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Tells whether [`UserFile::give_up`] was called: requests go to the kernel's cache.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Acquire)
    }

    /// Tells whether the engine could open it for writing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Cuts the file off at `bytes`, or extends it with zeroes; waits for the requests submitted
    /// before that write behind the new end, and blocks. What it meets otherwise took place before
    /// it, or takes place after it.
    ///
    /// # Errors
    /// Those of ftruncate(2); `EBADF`: it could not be opened for writing.
    pub fn set_len(self: &Arc<Self>, engine: &Arc<Engine>, bytes: u64) -> Result<(), Errno> {
        if !self.writable {
            return Err(Errno::BADF);
        }
        // All that is behind the smaller end, before and after.
        let from = bytes.min(self.cached.size());
        let ticket = wait_for_turn(engine, self, from..u64::MAX, Access::Write);
        let mut change = Change::cut(&self.cached, bytes);
        let cut = run_change(engine, &mut change)
            .and_then(|()| file::set_len(self.tail.number()?, bytes));
        let _section = Section::enter(engine);
        if cut.is_ok() {
            change.finish(bytes);
            self.remember();
        } else {
            drop(change);
        }
        leave(engine, &ticket);
        cut
    }

    /// Drops what is cached if the file has changed under it, as far as nothing of ours waits to
    /// be written, and no request is under way on it.
    fn look_again(self: &Arc<Self>, engine: &Arc<Engine>) {
        let changed = |now: Version| self.seen.lock().has_changed(&now);
        if !self.version().is_ok_and(changed) {
            return;
        }
        if let Some(ticket) = engine.orders().enter_if_free(self.key) {
            let mut look = Change::look(&self.cached);
            if run_change(engine, &mut look).is_ok() {
                self.take_as_it_is(look);
            }
            leave(engine, &ticket);
        }
    }

    /// Takes the file as somebody else has left it: nothing of it is cached, and nobody brings
    /// anything in, so that nothing gets lost between the look at it and the change of its size.
    pub(crate) fn take_as_it_is(&self, change: Change) {
        if let Ok(now) = self.version() {
            change.finish(now.stat.size as u64);
            *self.seen.lock() = now;
        }
    }

    fn version(&self) -> Result<Version, Errno> {
        self.tail.number().and_then(file::version)
    }

    pub(crate) fn note_given_up(&self) {
        self.given_up.store(true, Release);
    }

    /// Returns its descriptors in the application's table.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> {
        [&self.direct_open, &self.tail].into_iter().filter_map(|it| it.here.as_ref().map(Fd::raw))
    }

    /// Remembers the file as it is now: what is cached is on disk.
    pub(crate) fn remember(&self) {
        if let Ok(now) = self.version() {
            *self.seen.lock() = now;
        }
    }
}

/// Prepares a change of a file past its cache, on the calling thread, which sleeps while it waits.
///
/// # Errors
/// Those of [`Change::iterate`].
pub(crate) fn run_change(engine: &Arc<Engine>, change: &mut Change) -> Result<(), Errno> {
    sleep_through(engine, |bios, wait| change.iterate(bios, wait)).map(drop)
}

/// A request to a user file.
#[derive(Debug)]
pub struct UserOperation {
    kind: UserKind,
    file: Arc<UserFile>,
}

#[derive(Debug)]
enum UserKind {
    Read(ReadOperation),
    Write(WriteOperation),
    Sync(SyncOperation),
}

impl UserOperation {
    /// Makes what is left of a read of which the first `done` bytes were found cached.
    pub(crate) fn rest_of_read(
        Opened { file, reads }: Opened<'_>,
        offset: u64,
        done: usize,
        user: User,
    ) -> UserOperation {
        let read = ReadOperation::resume(file.cached.clone(), offset, done, user);
        let read = read.with_readahead(reads.clone(), true);
        UserOperation::new(file, UserKind::Read(read))
    }

    /// Makes what is left of a write that need not be durable, of which the beginning was copied
    /// to cached pages.
    pub(crate) fn rest_of_write(
        file: &Arc<UserFile>,
        offset: u64,
        begun: WriteStart,
        user: User,
    ) -> UserOperation {
        let write = WriteOperation::resume(file.cached.clone(), offset, begun, user);
        UserOperation::new(file, UserKind::Write(write))
    }

    fn new(file: &Arc<UserFile>, kind: UserKind) -> UserOperation {
        UserOperation { kind, file: file.clone() }
    }

    /// Makes a read from byte `offset` into all segments.
    ///
    /// # Safety
    /// The segments are valid for writing until the operation is dropped.
    pub unsafe fn read<'a>(
        opened: impl Into<Opened<'a>>,
        offset: u64,
        segments: Segments,
    ) -> UserOperation {
        let Opened { file, reads } = opened.into();
        // SAFETY: promised above.
        let user = unsafe { User::new(segments) };
        let read = ReadOperation::new(file.cached.clone(), offset, user);
        let read = read.with_readahead(reads.clone(), false);
        UserOperation::new(file, UserKind::Read(read))
    }

    /// Makes a write of all segments at byte `offset`, which ends when it is `durable`.
    ///
    /// # Safety
    /// The segments are valid until the operation is dropped.
    pub unsafe fn write(
        file: &Arc<UserFile>,
        offset: u64,
        segments: Segments,
        durable: Option<SyncLevel>,
    ) -> UserOperation {
        // SAFETY: promised above.
        let user = unsafe { User::new(segments) };
        let write = WriteOperation::new(file.cached.clone(), offset, user, durable);
        UserOperation::new(file, UserKind::Write(write))
    }

    /// Makes a write of all segments at the end of the file. Between its first iteration and its
    /// end no other write may run: a place in the order sees to that.
    ///
    /// # Safety
    /// The segments are valid until the operation is dropped.
    pub unsafe fn append(
        file: &Arc<UserFile>,
        segments: Segments,
        durable: Option<SyncLevel>,
    ) -> UserOperation {
        // SAFETY: promised above.
        let user = unsafe { User::new(segments) };
        let write = WriteOperation::append(file.cached.clone(), user, durable);
        UserOperation::new(file, UserKind::Write(write))
    }

    /// Makes a sync of the whole file.
    pub fn sync(file: &Arc<UserFile>, durable: SyncLevel) -> UserOperation {
        let kind = UserKind::Sync(SyncOperation::whole(file.cached.clone(), durable));
        UserOperation::new(file, kind)
    }

    /// Makes a sync of the data of `len` bytes from `offset` on; of all from there if `len` is 0.
    pub fn sync_range(file: &Arc<UserFile>, offset: u64, len: u64) -> UserOperation {
        let page = |at: u64| at / FRAME_BYTES as u64;
        let last = match len {
            0 => u64::MAX,
            _ => page(offset.saturating_add(len - 1)),
        };
        let sync = SyncOperation::new(file.cached.clone(), page(offset), last, SyncLevel::Data);
        UserOperation::new(file, UserKind::Sync(sync))
    }

    /// Runs an iteration; see [`ReadOperation::iterate`].
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        match &mut self.kind {
            UserKind::Read(read) => read.iterate(plug, wait),
            UserKind::Write(_) if !self.file.writable => Step::Done(Err(Errno::BADF)),
            UserKind::Write(write) => write.iterate(plug, wait),
            UserKind::Sync(sync) => {
                let step = sync.iterate(plug, wait);
                if matches!(step, Step::Done(Ok(_))) {
                    self.remember_sync();
                }
                step
            }
        }
    }

    /// After a sync, remembers the file as it is. Not after each durable write: the kernel gives a
    /// time that was looked at a new value at the next write, in the journal, and io_uring has that
    /// done by a worker (64 KiB O_DSYNC writes, 64 in flight: 13 k IOPS instead of 20 k). An open
    /// that comes before the next sync drops what is clean.
    fn remember_sync(&self) {
        self.file.remember();
    }

    /// Makes what `command` asks for.
    ///
    /// # Errors
    /// `EINVAL`: a poll.
    /// # Safety
    /// The segments are valid until the operation is dropped.
    pub unsafe fn of<'a>(
        opened: impl Into<Opened<'a>>,
        command: &Command,
    ) -> Result<UserOperation, Errno> {
        let opened = opened.into();
        let file = opened.file;
        let (segments, offset) = command.rest();
        let durable = command.durable();
        // SAFETY: promised above.
        Ok(unsafe {
            match command.kind {
                Kind::Read => UserOperation::read(opened, offset, segments),
                Kind::Write if command.is_append() => {
                    UserOperation::append(file, segments, durable)
                }
                Kind::Write => UserOperation::write(file, offset, segments, durable),
                Kind::Fsync => UserOperation::sync(file, SyncLevel::All),
                Kind::Fdatasync => UserOperation::sync_range(file, offset, command.sync_bytes),
                Kind::Poll(_) => return Err(Errno::INVAL),
            }
        })
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, UserKind::Write(_))
    }

    /// Runs the operation to its end on the calling thread, which sleeps while it waits: the
    /// same iterations, with the thread as what is kicked.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn run(mut self, engine: &Arc<Engine>) -> Result<u32, Errno> {
        let result = sleep_through(engine, |bios, wait| self.iterate(bios, wait));
        let is_write = self.is_write();
        drop(self);
        if is_write {
            engine.dirtied();
        }
        result
    }
}

impl Drop for UserOperation {
    fn drop(&mut self) {
        if self.is_write() {
            self.file.keep();
        }
    }
}
