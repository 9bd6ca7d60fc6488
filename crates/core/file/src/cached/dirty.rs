//! Dirty files, kept by the engine itself.
//!
//! The writer may be gone before the bytes are in the file: a submission can meet the close of
//! its descriptor, which has looked for what to write before this wrote it. So what makes a clean
//! file dirty leaves a reference here, which goes when the file is clean again.

use super::UserFile;
use crate::order::InodeKey;
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};
use nowait_sys::mistake::{self, Mistake};
use nowait_sys::mutex::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The files that the engine keeps.
#[derive(Debug, Default)]
pub(crate) struct DirtyFiles(Mutex<FxHashMap<InodeKey, Arc<UserFile>>>);

impl DirtyFiles {
    /// Releases the files that have nothing to write any more; tells whether some are left.
    pub(crate) fn tidy(&self) -> bool {
        let files: Vec<_> = self.0.lock().values().cloned().collect();
        files.iter().for_each(|file| file.let_go());
        !self.0.lock().is_empty()
    }

    /// Returns `true` if the engine keeps a file of this inode.
    pub(super) fn keeps(&self, key: InodeKey) -> bool {
        self.0.lock().contains_key(&key)
    }

    /// Releases all: the engine ends, and what could not be written never will be.
    pub(crate) fn clear(&self) {
        let files: Vec<_> = self.0.lock().values().cloned().collect();
        files.iter().for_each(|file| file.abandon());
    }
}

impl UserFile {
    /// After a write: keeps the file if that is not in it yet.
    pub(crate) fn keep(self: &Arc<Self>) {
        // The thread that releases looks the other way round, so one of both sees the other.
        fence(SeqCst);
        let keeps = !mistake::makes(Mistake::KeepNothing);
        if keeps && !self.is_kept.load(Relaxed) && self.is_dirty() {
            let mut kept = self.dirty_files.0.lock();
            self.is_kept.store(true, Relaxed);
            kept.insert(self.key(), self.clone());
        }
    }

    /// Ends the engine's own reference, unless there is something to write.
    pub(crate) fn let_go(&self) {
        if self.is_kept.load(Relaxed) {
            let mut kept = self.dirty_files.0.lock();
            self.is_kept.store(false, Relaxed);
            fence(SeqCst);
            let is_dirty = self.is_dirty();
            self.is_kept.store(is_dirty, Relaxed);
            let gone = if is_dirty { None } else { kept.remove(&self.key()) };
            drop(kept);
            drop(gone); // not under the lock: it may be the last reference
        }
    }

    /// Ends the engine's own reference: what is left could not be written, and the closing caller
    /// got the error.
    pub(crate) fn abandon(&self) {
        let mut kept = self.dirty_files.0.lock();
        self.is_kept.store(false, Relaxed);
        let gone = kept.remove(&self.key());
        drop(kept);
        drop(gone);
    }
}
