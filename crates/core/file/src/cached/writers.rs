//! The writers of a cached file. The engine opens the file for writing when the first writer comes,
//! and closes it for writing after the last. So a file that the engine only reads can be executed,
//! and its file system remounted read-only.

use super::{UserFile, open::target};
use crate::{
    Engine,
    hold::{BothTables, OpenCount},
};
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use nowait_block::bio::Descriptor;
use nowait_cache::Writes;
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    file::{self, O_DIRECT, O_WRONLY},
};
use std::sync::{Arc, Weak};

#[derive(Debug, Default)]
pub(super) struct Writers {
    pub(super) count: Arc<OpenCount>,
    open: Mutex<Option<Open>>,
    is_open: AtomicBool,
    /// `true`: a writer has come that is not counted; the file stays open for writing until the
    /// user file is dropped.
    is_pinned: AtomicBool,
}

#[derive(Debug)]
struct Open {
    direct: Arc<BothTables>,
    tail: Arc<BothTables>,
}

impl UserFile {
    pub(super) fn begin_writing(&self, engine: &Engine, fd: i32) -> Result<(), Errno> {
        // Counted first, so that no other thread closes the descriptors that are open now.
        self.writers.count.enter();
        self.open_to_write(engine, fd).inspect_err(|_| _ = self.writers.count.leave())
    }

    /// The caller has counted a writer.
    fn open_to_write(&self, engine: &Engine, fd: i32) -> Result<(), Errno> {
        let writers = &self.writers;
        if writers.open.lock().is_some() {
            return Ok(());
        }
        // Opens the file without the lock, because the open may wait for the disk. If two threads
        // open it at once, one pair of descriptors is dropped.
        let made = Open::of(engine, fd, self.direct, &writers.count)?;
        let mut open = writers.open.lock();
        if open.is_none() {
            let (direct, tail) = (target(&made.direct), target(&made.tail));
            self.cached.write_by(Some(Writes { direct, tail }));
            *open = Some(made);
            writers.is_open.store(true, Release);
        } else {
            drop(open);
            drop(made);
        }
        Ok(())
    }

    /// For writers whose close the engine does not see: keeps the file open for writing until the
    /// user file is dropped.
    pub(crate) fn pin_writing(&self, engine: &Engine, fd: i32) -> Result<(), Errno> {
        if self.writers.is_pinned.load(Acquire) {
            return Ok(());
        }
        self.begin_writing(engine, fd)?;
        self.writers.is_pinned.store(true, Release);
        self.writers.count.leave();
        Ok(())
    }

    /// Keeps the file open for writing until the returned writer ends: for a handle in another
    /// cache mode.
    ///
    /// # Errors
    /// The errors of open(2); `EAGAIN`: too many files are on their way to the engine's threads.
    pub fn write_through(self: &Arc<Self>, engine: &Engine, fd: i32) -> Result<Writer, Errno> {
        self.begin_writing(engine, fd)?;
        Ok(Writer(Arc::downgrade(self)))
    }

    pub(super) fn end_writing(&self) -> bool {
        self.writers.count.leave()
    }

    /// Closes the descriptors that are open for writing, unless the file is pinned for writing, a
    /// writer is counted, or data are dirty. Returns `false` if the descriptors stay open.
    pub(super) fn close_writes(&self) -> bool {
        let mut open = self.writers.open.lock();
        let is_pinned = self.writers.is_pinned.load(Acquire);
        if is_pinned || !self.writers.count.has_no_handle() || self.is_dirty() {
            return false;
        }
        self.writers.is_open.store(false, Release);
        let gone = (open.take(), self.cached.write_by(None));
        drop(open);
        drop(gone);
        true
    }

    /// Returns `true` if the engine has the file open for writing.
    pub fn is_writable(&self) -> bool {
        self.writers.is_open.load(Acquire)
    }

    /// The cache is not changed.
    pub(super) fn set_len_behind(&self, bytes: u64) -> Result<(), Errno> {
        let tail = self.writers.open.lock().as_ref().map(|open| open.tail.clone());
        file::set_len(tail.ok_or(Errno::BADF)?.number()?, bytes)
    }
}

/// A writer whose handle is in another cache mode.
#[derive(Debug)]
pub struct Writer(Weak<UserFile>);

impl Writer {
    /// Returns `true` if this is a writer of `file`.
    pub fn is_of(&self, file: &Arc<UserFile>) -> bool {
        core::ptr::eq(self.0.as_ptr(), Arc::as_ptr(file))
    }

    /// Ends the writer. The end of a file's last writer writes the dirty data and closes the
    /// descriptors for writing, unless the file is pinned or still dirty.
    ///
    /// # Errors
    /// The error of a write to the file, in this call or before.
    pub fn end(self, engine: &Arc<Engine>) -> Result<(), Errno> {
        let Some(file) = self.0.upgrade().filter(|file| file.end_writing()) else { return Ok(()) };
        let written = file.write_back_at_close(engine, false);
        if file.close_writes() {
            engine.wait_until_closed(&[&file.writers.count], || false);
        }
        written
    }
}

impl Open {
    fn of(
        engine: &Engine,
        fd: i32,
        is_direct: bool,
        count: &Arc<OpenCount>,
    ) -> Result<Open, Errno> {
        let reopen = |flags| {
            // High numbers, so that the application's own opens get the usual low ones.
            let opened = file::reopen(fd, O_WRONLY | flags)?.moved_high();
            engine.in_both_tables(opened, Some(count))
        };
        Ok(Open { direct: reopen(if is_direct { O_DIRECT } else { 0 })?, tail: reopen(0)? })
    }
}

impl Writers {
    pub(super) fn descriptors(&self) -> Vec<i32> {
        let open = self.open.lock();
        let both = open.iter().flat_map(|open| [&open.direct, &open.tail]);
        both.filter_map(|it| it.here()).collect()
    }
}
