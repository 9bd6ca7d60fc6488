//! The open of a file in the engine's page cache.

use super::{
    Entry, Files, UserFile,
    exclusion::{leave, run_change, wait_for_turn},
    inode_marks::Mark,
};
use crate::{
    Engine,
    engine::parker::Parker,
    hold::BothTables,
    order::{Access, InodeKey, Ticket},
};
use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Release},
};
use nowait_cache::{Backing, CachedFile, Change, Target};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    file::{self, O_DIRECT, O_RDONLY, O_RDWR, Version},
    mistake::{self, Mistake},
};
use std::{sync::Arc, task::Waker};

/// Alignment of direct requests: that of frames suits every device.
const BLOCK_BYTES: u32 = 4096;

impl UserFile {
    /// Opens the file behind `fd` once more, through the page cache; `fd` stays the caller's.
    ///
    /// What is cached of it is dropped if another process has changed it. Waits for the writes in
    /// flight that the engine does past the cache, and may wait for the disk.
    /// # Errors
    /// `EINVAL`: not a regular file. `ENOMEM`: no memory for the page cache. Those of open(2),
    /// and `EAGAIN`: too many files are in flight to the engine's threads.
    pub fn open(engine: &Arc<Engine>, fd: i32) -> Result<Arc<UserFile>, Errno> {
        UserFile::open_or(engine, fd, |_| true, true)
    }

    /// The same on a thread that submits, and may not wait for what it has submitted. `is_idle`
    /// tells whether nothing else that the caller knows of changes the inode: it is marked by then.
    ///
    /// # Errors
    /// Those of [`UserFile::open`]. `EBUSY`: a write past the cache is in flight.
    pub fn open_if_idle(
        engine: &Arc<Engine>,
        fd: i32,
        is_idle: impl FnOnce(InodeKey) -> bool,
    ) -> Result<Arc<UserFile>, Errno> {
        UserFile::open_or(engine, fd, is_idle, false)
    }

    /// Opens it; `waits` for writes past the cache that are in flight.
    fn open_or(
        engine: &Arc<Engine>,
        fd: i32,
        is_idle: impl FnOnce(InodeKey) -> bool,
        waits: bool,
    ) -> Result<Arc<UserFile>, Errno> {
        engine.drop_deferred();
        let stat = file::stat(fd)?;
        if !stat.is_regular() {
            return Err(Errno::INVAL);
        }
        let key = (stat.dev, stat.ino);
        let cached = engine.cached_files();
        // Two opens at once must not make two caches of one file.
        let turn = match cached.begin_open(key) {
            Ok(turn) => turn,
            Err(open) => {
                open.wait_until_open(engine);
                open.look_again(engine);
                return Ok(open);
            }
        };
        engine.start_cleaner()?;
        // From here on a write past the cache finds the mark, or is found in flight.
        let mark = cached.marks.mark(key);
        let is_idle = cached.writes.none_at_all(key) && is_idle(key);
        let at_once = mistake::makes(Mistake::OpenAtOnce);
        if !(is_idle || waits || at_once) {
            return Err(Errno::BUSY);
        }
        let made = Arc::new(UserFile::make(engine, fd, key, mark)?);
        engine.populate_cache();
        let mut files = cached.files.lock();
        // A write that comes from now on finds the file.
        if is_idle && !turn.opening.is_passed() || at_once {
            made.publish(engine, &mut files);
            return Ok(made);
        }
        if !waits {
            drop(files);
            return Err(Errno::BUSY);
        }
        made.is_opening.store(true, Release);
        let ticket = engine.orders().enter_open(key);
        made.publish(engine, &mut files);
        drop((files, turn));
        made.wait_for_writes(engine, &ticket)
    }

    /// Waits for the writes in flight past the cache; requests that come now wait for that, too.
    fn wait_for_writes(
        self: Arc<Self>,
        engine: &Arc<Engine>,
        ticket: &Ticket,
    ) -> Result<Arc<UserFile>, Errno> {
        let parker = Parker::new();
        let waker = Waker::from(parker.clone());
        engine.cached_files().writes.wait_for_none(self.key, &waker, || parker.sleep(engine));
        let mut look = Change::outside(&self.cached);
        let looked = run_change(engine, &mut look).map(|()| self.take_as_it_is(look));
        self.is_opening.store(false, Release);
        leave(engine, ticket);
        looked.map(|()| self)
    }

    /// Lets others find it.
    fn publish(self: &Arc<Self>, engine: &Engine, files: &mut Files<'_>) {
        files.retain(|_, entry| match entry {
            Entry::Open(file) => file.strong_count() > 0,
            Entry::Opening(_) => true,
        });
        files.insert(self.key, Entry::Open(Arc::downgrade(self)));
        engine.cached_files().any.store(true, Release);
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
        let direct = engine.in_both_tables(direct.moved_high())?;
        let tail = engine.in_both_tables(tail.moved_high())?;
        let target = |file: &Arc<BothTables>| Target { fd: -1, file: Some(file.clone()) };
        let backing = Backing {
            direct: target(&direct),
            tail: target(&tail),
            device: key.0,
            block_bytes: BLOCK_BYTES,
        };
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
            dirty_files: engine.cached_files().dirty.clone(),
            is_kept: AtomicBool::new(false),
            _mark: mark,
        })
    }

    /// Drops what is cached if the file has changed under it, as far as nothing of ours waits to
    /// be written, and no request is in flight on it.
    fn look_again(self: &Arc<Self>, engine: &Arc<Engine>) {
        let changed = |now: Version| self.seen.lock().has_changed(&now);
        if !self.version().is_ok_and(changed) {
            return;
        }
        let early = mistake::makes(Mistake::LookTooEarly).then(|| self.version());
        if let Some(ticket) = engine.orders().enter_if_free(self.key) {
            let mut look = Change::look(&self.cached);
            if run_change(engine, &mut look).is_ok() {
                match early {
                    Some(Ok(then)) => look.finish(then.stat.size as u64),
                    _ => self.take_as_it_is(look),
                }
            }
            leave(engine, &ticket);
        }
    }

    /// Takes the file as another program has left it: nothing of it is cached or brought in, so
    /// that nothing gets lost between the look at it and the change of its size.
    pub(crate) fn take_as_it_is(&self, change: Change) {
        if let Ok(now) = self.version() {
            change.finish(now.stat.size as u64);
            *self.seen.lock() = now;
        }
    }
}
