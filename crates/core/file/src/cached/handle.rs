//! Handles: open user files that are closed by a call.

use super::{UserFile, UserOperation};
use crate::{Engine, hold::OpenCount};
use nowait_cache::SyncLevel;
use nowait_sys::{
    Errno,
    mistake::{self, Mistake},
};
use std::sync::Arc;

/// An open file in the page cache. [`UserHandle::close`] closes the handle; a handle that is merely
/// dropped leaves the file counted as open.
#[derive(Debug)]
pub struct UserHandle {
    file: Arc<UserFile>,
    writes: bool,
}

impl UserHandle {
    /// Opens the file behind `fd` through the page cache, for reading; if `writes`, also for
    /// writing.
    ///
    /// # Errors
    /// The errors of [`UserFile::open`]. `EACCES`, `EPERM`, `EROFS`, `ETXTBSY`: the file cannot be
    /// opened for writing.
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

    /// Closes the handle. The close of the last handle, or of the last that writes, writes the
    /// dirty data, and then waits at most a second until the engine has closed its own descriptors
    /// of the file. `is_last`: no handle in another cache mode, which may ask for a sync later, has
    /// the file open.
    ///
    /// # Errors
    /// The error of a write to the file, in this call or before. If this was the last handle, and
    /// `is_last`, the data that could not be written are lost.
    pub fn close(self, engine: &Arc<Engine>, is_last: bool) -> Result<(), Errno> {
        let UserHandle { file, writes } = self;
        let was_last_writer = writes && file.end_writing();
        let was_last = file.handles.leave();
        if !(was_last || was_last_writer) {
            return Ok(());
        }
        let closed = file.write_back_at_close(engine, was_last && is_last);
        // Closes the file for writing even after the last handle: another handle may have been
        // opened since.
        let closes_writes = was_last_writer && file.close_writes();
        let (handles, writers) = (file.handles.clone(), file.writers.count.clone());
        let mut counts: Vec<&Arc<OpenCount>> = Vec::new();
        counts.extend((was_last || closes_writes).then_some(&writers));
        counts.extend(was_last.then_some(&handles));
        let key = file.key();
        drop(file);
        // Pages that a handle in another cache mode has dirtied meanwhile keep the file open until
        // they are on disk.
        let is_kept = || was_last && engine.user_files.dirty.keeps(key);
        if !mistake::makes(Mistake::CloseAtOnce) {
            engine.wait_until_closed(&counts, is_kept);
        }
        closed
    }
}

impl UserFile {
    /// Writes the dirty data when the last handle, or the last that writes, is closed. If the inode
    /// has no other open (`is_last`), drops data that could not be written.
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
            // A handle in another cache mode may have written meanwhile: then the engine keeps the
            // file.
            Ok(()) if !mistake::makes(Mistake::AbandonAtClose) => self.release_if_clean(),
            // A later sync by another open file must still fail.
            Err(_) if !is_last => {}
            _ => self.abandon(),
        }
        written
    }
}
