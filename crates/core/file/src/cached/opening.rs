//! Opens in progress. One thread opens a file; other threads that open the same file wait for it.
//!
//! The opening thread does not hold the lock of the user files, because submitters take this lock
//! and would wait for an open(2) that does not concern them. Submitters bypass the cache for a file
//! that is still being opened; a write that does so sets a flag, and the open then waits for the
//! end of the write.

use super::{CachedFiles, Entry, UserFile};
use crate::order::InodeKey;
use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use nowait_sys::{futex, time::Deadline};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Opening {
    /// 0: the open is in progress. 1: it has ended.
    over: AtomicU32,
    /// `true`: a write that bypasses the cache has begun meanwhile. Changed and read under the lock
    /// of the files.
    is_passed: AtomicBool,
}

impl Opening {
    pub(super) fn pass(&self) {
        self.is_passed.store(true, Relaxed);
    }

    pub(super) fn is_passed(&self) -> bool {
        self.is_passed.load(Relaxed)
    }

    pub(super) fn wait(&self) {
        while self.over.load(Acquire) == 0 {
            let _ = futex::wait(&self.over, 0, Deadline::NEVER);
        }
    }
}

/// The right of one thread to open a file. The right ends when the value is dropped, whether the
/// open succeeded or failed.
pub(super) struct Turn<'a> {
    files: &'a CachedFiles,
    key: InodeKey,
    pub(super) opening: Arc<Opening>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut files = self.files.files.lock();
        if let Some(Entry::Opening(_)) = files.get(&self.key) {
            files.remove(&self.key); // it could not be opened
        }
        drop(files);
        self.opening.over.store(1, Release);
        futex::wake(&self.opening.over, u32::MAX);
    }
}

impl CachedFiles {
    /// Waits while another thread is opening the file. Returns the file as the error if it is open.
    pub(super) fn begin_open(&self, key: InodeKey) -> Result<Turn<'_>, Arc<UserFile>> {
        loop {
            let mut files = self.files.lock();
            let entry = files.get(&key);
            if let Some(open) = entry.and_then(Entry::file) {
                return Err(open);
            }
            let Some(Entry::Opening(other)) = entry else {
                let opening = Arc::<Opening>::default();
                files.insert(key, Entry::Opening(opening.clone()));
                return Ok(Turn { files: self, key, opening });
            };
            let other = other.clone();
            drop(files);
            other.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_open_waits_for_the_first_and_lookups_do_not() {
        let files = Arc::<CachedFiles>::default();
        let (key, other_key) = ((1, 2), (1, 3));
        let turn = files.begin_open(key).ok().unwrap();
        assert!(files.with_key(key).is_none() && files.for_write(other_key).is_none());
        assert!(!turn.opening.is_passed());
        assert!(files.for_write(key).is_none() && turn.opening.is_passed());
        let second = files.clone();
        let second = std::thread::spawn(move || {
            second.begin_open(key).is_ok_and(|turn| !turn.opening.is_passed())
        });
        drop(turn);
        assert!(second.join().unwrap());
        assert!(files.files.lock().is_empty());
    }
}
