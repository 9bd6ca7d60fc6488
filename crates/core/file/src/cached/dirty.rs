//! Dirty files, kept open by the engine itself.
//!
//! The program may close its descriptor while a write is being submitted. The close writes the
//! dirty data that it finds, and may be over before the write makes the file dirty. So the write
//! leaves a reference to the dirty file in [`DirtyFiles`]; the reference is dropped when the file
//! is clean again.

use super::UserFile;
use crate::order::InodeKey;
use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};
use nowait_sys::mistake::{self, Mistake};
use nowait_sys::mutex::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct DirtyFiles(Mutex<FxHashMap<InodeKey, Arc<UserFile>>>);

impl DirtyFiles {
    pub(crate) fn tidy(&self) -> bool {
        let files: Vec<_> = self.0.lock().values().cloned().collect();
        files.iter().for_each(|file| file.release_if_clean());
        !self.0.lock().is_empty()
    }

    pub(super) fn keeps(&self, key: InodeKey) -> bool {
        self.0.lock().contains_key(&key)
    }

    /// Drops the references to all files when the engine ends: dirty data are lost.
    pub(crate) fn clear(&self) {
        let files: Vec<_> = self.0.lock().values().cloned().collect();
        files.iter().for_each(|file| file.abandon());
    }
}

impl UserFile {
    /// Makes the engine keep the file open if the file is dirty. Called after a write has copied
    /// bytes into the cache, or has ended.
    pub(crate) fn keep(self: &Arc<Self>) {
        // This thread writes first and then reads `is_kept`; the thread that releases the file
        // clears `is_kept` first and then looks for dirty data. So this thread sees `false`, or the
        // other thread sees the dirty data.
        fence(SeqCst);
        let keeps = !mistake::makes(Mistake::KeepNothing);
        if keeps && !self.is_kept.load(Relaxed) && self.is_dirty() {
            let mut kept = self.dirty_files.0.lock();
            self.is_kept.store(true, Relaxed);
            kept.insert(self.key(), self.clone());
        }
    }

    pub(crate) fn release_if_clean(&self) {
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

    /// Drops the engine's own reference even if the file is dirty: when the engine ends, or at the
    /// last close if data could not be written.
    pub(crate) fn abandon(&self) {
        let mut kept = self.dirty_files.0.lock();
        self.is_kept.store(false, Relaxed);
        let gone = kept.remove(&self.key());
        drop(kept);
        drop(gone);
    }
}
