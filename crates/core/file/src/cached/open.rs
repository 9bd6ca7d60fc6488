//! The open of a file in the engine's page cache.

use super::{
    Entry, Files, UserFile,
    exclusion::{leave, run_change, wait_for_turn},
    inode_marks::Mark,
    writers::Writers,
};
use crate::{
    Engine,
    engine::parker::Parker,
    hold::{BothTables, OpenCount},
    order::{Access, InodeKey, Ticket},
};
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use nowait_cache::{Backing, CachedFile, Change, FRAME_BYTES, Target};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno, Fd,
    file::{self, O_ACCMODE, O_DIRECT, O_RDONLY, Version, status_flags},
    inspect::{self, DirectAlignment},
    mistake::{self, Mistake},
};
use std::{sync::Arc, task::Waker};

impl UserFile {
    /// Opens the file behind `fd` once more, through the page cache; `fd` stays the caller's. If
    /// `fd` can write and the file can be opened for writing, the engine keeps the file open for
    /// writing as long as the user file exists. A [`UserHandle`](super::UserHandle) keeps the file
    /// open for writing only until the handle is closed.
    ///
    /// If another program may have changed the file since the cache read it, the open waits for the
    /// requests in flight. Then it writes and drops the file's cached pages; if a page cannot be
    /// written, all pages stay. Waits for the engine's writes to the file in flight that bypass the
    /// cache; may wait for the disk.
    /// # Errors
    /// `EINVAL`: not a regular file. `ENOMEM`: no memory for the page cache. Errors of open(2).
    /// `EAGAIN`: too many files are on their way to the engine's threads.
    pub fn open(engine: &Arc<Engine>, fd: i32) -> Result<Arc<UserFile>, Errno> {
        let file = UserFile::open_for_reading(engine, fd)?;
        if status_flags(fd)? & O_ACCMODE == O_RDONLY {
            return Ok(file);
        }
        match file.pin_writing(engine, fd) {
            // The file cannot be opened for writing: the user file is for reading only.
            Ok(()) | Err(Errno::ACCES | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => Ok(file),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn open_for_reading(engine: &Arc<Engine>, fd: i32) -> Result<Arc<UserFile>, Errno> {
        engine.drop_deferred();
        let stat = file::stat(fd)?;
        if !stat.is_regular() {
            return Err(Errno::INVAL);
        }
        let key = (stat.dev, stat.ino);
        let cached = &engine.user_files;
        // Two threads that open a file at once must not make two caches of it.
        let turn = match cached.begin_open(key) {
            Ok(turn) => turn,
            Err(open) => {
                open.wait_until_open(engine);
                open.look_again(engine);
                return Ok(open);
            }
        };
        // From here on, a write that would bypass the cache finds the mark, or is seen in flight
        // below.
        let mark = cached.marks.mark(key);
        let is_idle = cached.writes.none_at_all(key);
        let at_once = mistake::makes(Mistake::OpenAtOnce);
        let made = Arc::new(UserFile::make(engine, fd, key, mark)?);
        let mut files = cached.files.lock();
        // A write that begins from now on finds the file.
        if is_idle && !turn.opening.is_passed() || at_once {
            made.publish(&mut files);
            return Ok(made);
        }
        made.is_opening.store(true, Release);
        let ticket = engine.orders.enter_open(key);
        made.publish(&mut files);
        drop((files, turn));
        made.wait_for_writes(engine, &ticket)
    }

    /// Waits for the writes in flight that bypass the cache. Cached requests to the file that come
    /// meanwhile wait, too.
    fn wait_for_writes(
        self: Arc<Self>,
        engine: &Arc<Engine>,
        ticket: &Ticket,
    ) -> Result<Arc<UserFile>, Errno> {
        let parker = Parker::new();
        let waker = Waker::from(parker.clone());
        engine.user_files.writes.wait_for_none(self.key, &waker, || parker.sleep(engine));
        let mut look = Change::outside(&self.cached);
        let looked = run_change(engine, &mut look).map(|()| self.take_as_it_is(look));
        self.is_opening.store(false, Release);
        leave(engine, ticket);
        looked.map(|()| self)
    }

    fn publish(self: &Arc<Self>, files: &mut Files<'_>) {
        files.retain(|_, entry| match entry {
            Entry::Open(file) => file.strong_count() > 0,
            Entry::Opening(_) => true,
        });
        files.insert(self.key, Entry::Open(Arc::downgrade(self)));
    }

    /// Waits until the open is over, if another thread's open still waits for writes.
    pub fn wait_until_open(self: &Arc<Self>, engine: &Arc<Engine>) {
        if self.is_opening.load(Acquire) {
            let ticket = wait_for_turn(engine, self, 0..u64::MAX, Access::Sync);
            leave(engine, &ticket);
        }
    }

    fn make(engine: &Engine, fd: i32, key: InodeKey, mark: Mark) -> Result<UserFile, Errno> {
        // Read only now: the user file that had this inode before may have written to the file
        // until it was dropped.
        let version = file::version(fd)?;
        let (opened, is_direct) = open_to_read(fd)?;
        let handles = Arc::<OpenCount>::default();
        // A high number, so that the application's own opens get the usual low ones.
        let opened = engine.in_both_tables(opened.moved_high(), Some(&handles))?;
        let (reads, block_bytes) = (target(&opened), FRAME_BYTES as u32);
        let backing = Backing { reads, writes: None, device: key.0, block_bytes };
        let cached = CachedFile::new(&engine.cache()?, backing, version.stat.size as u64);
        Ok(UserFile {
            key,
            cached,
            reads: UserFile::new_open(),
            handles,
            writers: Writers::default(),
            direct: is_direct,
            seen: Mutex::new(version),
            is_opening: AtomicBool::new(false),
            opened,
            dirty_files: engine.user_files.dirty.clone(),
            is_kept: AtomicBool::new(false),
            _mark: mark,
        })
    }

    /// Writes and drops the cached pages if another program may have changed the file. If a page
    /// cannot be written, all pages stay, and the next open checks again.
    fn look_again(self: &Arc<Self>, engine: &Arc<Engine>) {
        let changed = |now: Version| self.seen.lock().has_changed(&now);
        if !self.version().is_ok_and(changed) {
            return;
        }
        // Before the exclusion, so that other requests go on: this write may take long.
        if self.settle(engine).is_err() {
            return;
        }
        let early = mistake::makes(Mistake::LookTooEarly).then(|| self.version());
        match (self.exclude(engine), early) {
            (Ok(exclusion), Some(Ok(then))) => exclusion.take_as(then),
            (exclusion, _) => drop(exclusion),
        }
    }

    /// Ends `change` with the size and version that the file has now; if they cannot be read, drops
    /// `change`. No page of the file is cached or being read, so no request uses an older size.
    pub(crate) fn take_as_it_is(&self, change: Change) {
        if let Ok(now) = self.version() {
            self.take_as(change, now);
        }
    }

    /// Used by a deliberate test mistake only.
    pub(super) fn see(&self) {
        if let Ok(now) = self.version() {
            *self.seen.lock() = now;
        }
    }

    pub(super) fn take_as(&self, change: Change, version: Version) {
        change.finish(version.stat.size as u64);
        *self.seen.lock() = version;
    }
}

pub(super) fn target(file: &Arc<BothTables>) -> Target {
    Target { fd: -1, file: Some(file.clone()) }
}

/// The `bool` is `true` if the reads bypass the kernel's page cache.
fn open_to_read(fd: i32) -> Result<(Fd, bool), Errno> {
    match file::reopen(fd, O_RDONLY | O_DIRECT) {
        Err(Errno::INVAL) => {}
        Err(errno) => return Err(errno),
        Ok(direct) if takes_frames(inspect::direct_alignment(direct.raw()).unwrap_or(None)) => {
            return Ok((direct, true));
        }
        Ok(_) => {}
    }
    Ok((file::reopen(fd, O_RDONLY)?, false))
}

/// Returns `true` if a file takes direct requests of a single frame. A file without known alignment
/// is assumed to take blocks of up to 4 KiB.
fn takes_frames(alignment: Option<DirectAlignment>) -> bool {
    let frame = FRAME_BYTES as u32;
    alignment.is_none_or(|asked| asked.offset <= frame && asked.memory <= frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_blocks_larger_than_a_frame_goes_through_the_kernels_cache() {
        let asked = |memory, offset| takes_frames(Some(DirectAlignment { memory, offset }));
        assert!(takes_frames(None) && asked(512, 512) && asked(4096, 4096));
        assert!(!asked(512, 16_384) && !asked(8192, 512));
    }
}
