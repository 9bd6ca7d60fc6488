//! Handles: the opens of a user file that say their end.

use super::{UserFile, UserOperation};
use crate::{Engine, hold::OpenCount};
use nowait_cache::SyncLevel;
use nowait_sys::{
    Errno,
    mistake::{self, Mistake},
};
use std::sync::Arc;

/// An open of a file in the page cache. [`UserHandle::close`] ends it; one that is merely dropped
/// leaves the file as if it were open.
#[derive(Debug)]
pub struct UserHandle {
    file: Arc<UserFile>,
    writes: bool,
}

impl UserHandle {
    /// Opens the file behind `fd`, as [`UserFile::open`] does; `writes`: also for writing.
    ///
    /// # Errors
    /// The errors of [`UserFile::open`]. `EACCES`, `EPERM`, `EROFS`, `ETXTBSY`: not for writing.
    pub fn open(engine: &Arc<Engine>, fd: i32, writes: bool) -> Result<UserHandle, Errno> {
        let file = UserFile::open_for_reading(engine, fd)?;
        file.handles.enter();
        if writes && let Err(errno) = file.begin_writing(engine, fd) {
            let handle = UserHandle { file, writes: false };
            let _ = handle.close(engine, true);
            return Err(errno);
        }
        Ok(UserHandle { file, writes })
    }

    /// Returns the file.
    pub fn file(&self) -> &Arc<UserFile> {
        &self.file
    }

    /// Closes it. The last handle, and the last that writes, has what is dirty written first, and
    /// waits until the engine has closed what it had open for them: a second at most, which only a
    /// device that hangs takes. `is_last`: no handle in another mode has the file open, which may
    /// ask for a sync later.
    ///
    /// # Errors
    /// The error of a write to the file, in this call or before; what is lost stays lost.
    pub fn close(self, engine: &Arc<Engine>, is_last: bool) -> Result<(), Errno> {
        let UserHandle { file, writes } = self;
        let was_last_writer = writes && file.end_writing();
        let was_last = file.handles.leave();
        if !(was_last || was_last_writer) {
            return Ok(());
        }
        let closed = file.write_back_at_close(engine, was_last && is_last);
        // Also where it was the last of all: another may be opened by now.
        let closes_writes = was_last_writer && file.close_writes();
        let (handles, writers) = (file.handles.clone(), file.writers.count.clone());
        let mut counts: Vec<&Arc<OpenCount>> = Vec::new();
        counts.extend((was_last || closes_writes).then_some(&writers));
        counts.extend(was_last.then_some(&handles));
        let key = file.key();
        drop(file);
        // Pages that an open in another mode dirties meanwhile keep the file, until they are on
        // disk.
        let is_kept = || was_last && engine.user_files.dirty.keeps(key);
        if !mistake::makes(Mistake::CloseAtOnce) {
            engine.wait_until_closed(&counts, is_kept);
        }
        closed
    }
}

impl UserFile {
    /// Writes the dirty data, at the close of the last open of its kind. At the close of the last
    /// open of all (`is_last`), gives up data that could not be written.
    ///
    /// # Errors
    /// The error of a write to the file, in this call or before.
    pub fn write_back_at_close(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        is_last: bool,
    ) -> Result<(), Errno> {
        let written = match self.cached().is_dirty() {
            true => UserOperation::sync(self, SyncLevel::WriteOnly).run(engine).map(drop),
            false => Ok(()),
        };
        let written = written.and_then(|()| self.cached().lost().map_or(Ok(()), Err));
        match written {
            // An open in another mode may have written meanwhile: then the engine keeps it.
            Ok(()) if !mistake::makes(Mistake::AbandonAtClose) => self.let_go(),
            // A sync of another open must still fail.
            Err(_) if !is_last => {}
            _ => self.abandon(),
        }
        written
    }
}
