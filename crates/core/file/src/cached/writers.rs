//! Who may write a cached file: the engine opens it for writing when the first writer comes, and
//! closes that with the last, so that a file which is only read here can be executed, and its file
//! system remounted.

use super::{UserFile, open::target};
use crate::{
    Engine,
    hold::{BothTables, OpenCount},
};
use core::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire, Release},
};
use nowait_block::bio::Descriptor;
use nowait_cache::Writes;
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    file::{self, O_DIRECT, O_WRONLY},
};
use std::sync::Arc;

/// The writers of a user file, and what the engine has open for them.
#[derive(Debug, Default)]
pub(super) struct Writers {
    count: Arc<OpenCount>,
    open: Mutex<Option<Open>>,
    is_open: AtomicBool,
    /// A writer that is not counted has come: until the end of the file.
    is_pinned: AtomicBool,
}

#[derive(Debug)]
struct Open {
    direct: Arc<BothTables>,
    tail: Arc<BothTables>,
}

impl UserFile {
    /// Counts a writer, whose file `fd` is, and opens that for writing if it is the first.
    ///
    /// # Errors
    /// Those of open(2); `EAGAIN`: too many files are in flight to the engine's threads.
    pub(super) fn begin_writing(&self, engine: &Engine, fd: i32) -> Result<(), Errno> {
        let writers = &self.writers;
        let mut open = writers.open.lock();
        if open.is_none() {
            let made = Open::of(engine, fd, self.is_direct(), &writers.count)?;
            let (direct, tail) = (target(&made.direct), target(&made.tail));
            self.cached.write_by(Some(Writes { direct, tail }));
            *open = Some(made);
            writers.is_open.store(true, Release);
        }
        writers.count.enter();
        Ok(())
    }

    /// Has the file open for writing until it is closed: for writers that say no end.
    ///
    /// # Errors
    /// Those of open(2); `EAGAIN`: too many files are in flight to the engine's threads.
    pub fn pin_writing(&self, engine: &Engine, fd: i32) -> Result<(), Errno> {
        if self.writers.is_pinned.load(Acquire) {
            return Ok(());
        }
        self.begin_writing(engine, fd)?;
        if self.writers.is_pinned.swap(true, AcqRel) {
            self.writers.count.leave();
        }
        Ok(())
    }

    /// Ends a writer; true: it was the last.
    pub(super) fn end_writing(&self) -> bool {
        self.writers.count.leave()
    }

    /// Closes what is open for writing, unless there is a writer, or something to be written; and
    /// waits until it is closed.
    pub(super) fn close_writes(&self, engine: &Arc<Engine>) {
        let mut open = self.writers.open.lock();
        if !self.writers.count.has_no_handle() || self.is_dirty() {
            return;
        }
        self.writers.is_open.store(false, Release);
        let gone = (open.take(), self.cached.write_by(None));
        drop(open);
        drop(gone);
        engine.wait_until_closed(&self.writers.count, || false);
    }

    /// Returns `true` if the engine has it open for writing.
    pub fn is_writable(&self) -> bool {
        self.writers.is_open.load(Acquire)
    }

    /// Sets the size of the file behind the cache.
    ///
    /// # Errors
    /// Those of ftruncate(2); `EBADF`: it has no writer.
    pub(super) fn set_len_behind(&self, bytes: u64) -> Result<(), Errno> {
        let tail = self.writers.open.lock().as_ref().map(|open| open.tail.clone());
        file::set_len(tail.ok_or(Errno::BADF)?.number()?, bytes)
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
            // Out of the way of the numbers that the application's own opens would get.
            let opened = file::reopen(fd, O_WRONLY | flags)?.moved_high();
            engine.in_both_tables(opened, Some(count))
        };
        Ok(Open { direct: reopen(if is_direct { O_DIRECT } else { 0 })?, tail: reopen(0)? })
    }
}

impl Writers {
    /// Returns their count.
    pub(super) fn count(&self) -> &Arc<OpenCount> {
        &self.count
    }

    /// Returns their descriptors in the application's table.
    pub(super) fn descriptors(&self) -> Vec<i32> {
        let open = self.open.lock();
        let both = open.iter().flat_map(|open| [&open.direct, &open.tail]);
        both.filter_map(|it| it.here()).collect()
    }
}
