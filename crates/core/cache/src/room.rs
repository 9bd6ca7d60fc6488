//! Operations that wait for a frame, or until fewer frames are dirty or being read.

use crate::primitives::{AtomicU32, Mutex, Relaxed, SeqCst, fence};
use nowait_retry::WaitEntry;

/// Wait entries of operations that found no free frame, or too many frames dirty or being read.
#[derive(Debug)]
pub(crate) struct Room {
    /// 1 if entries wait, else 0. Each `notice` reads it without the lock.
    waiting: AtomicU32,
    entries: Mutex<Vec<WaitEntry>>,
}

impl Default for Room {
    fn default() -> Room {
        Room { waiting: AtomicU32::new(0), entries: Mutex::new(Vec::new()) }
    }
}

impl Room {
    /// Leaves an entry. The caller must then check again if it has to wait.
    pub(crate) fn arm(&self, entry: WaitEntry) {
        let mut entries = self.entries.lock();
        entries.push(entry);
        self.waiting.store(1, Relaxed);
        drop(entries);
        // Pairs with the load in `notice`: either the other thread sees the entry, or the caller's
        // next check sees the change of the other thread.
        fence(SeqCst);
    }

    /// Kicks all waiting operations. The caller has changed a state or freed frames: by a SeqCst
    /// operation, or under the lock that the waiting operation takes for its check.
    #[inline]
    pub(crate) fn notice(&self) {
        if self.waiting.load(SeqCst) != 0 {
            self.kick();
        }
    }

    #[cold]
    fn kick(&self) {
        let mut entries = self.entries.lock();
        self.waiting.store(0, Relaxed);
        let woken = core::mem::take(&mut *entries);
        drop(entries);
        woken.into_iter().for_each(WaitEntry::wake);
    }
}
