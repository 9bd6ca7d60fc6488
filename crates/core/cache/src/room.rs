//! Operations that wait for a frame, or until fewer frames are dirty or being read.

use crate::primitives::{AtomicU32, Mutex, Relaxed, SeqCst, fence};
use nowait_retry::WaitEntry;

/// A list of entries, which are all kicked when something changes. Used only if the pool is
/// exhausted, too dirty, or too much of it is being read.
#[derive(Debug)]
pub(crate) struct Room {
    /// 1 if entries wait, else 0. Every access to the cache reads it; writes are rare.
    waiting: AtomicU32,
    entries: Mutex<Vec<WaitEntry>>,
}

impl Default for Room {
    fn default() -> Room {
        Room { waiting: AtomicU32::new(0), entries: Mutex::new(Vec::new()) }
    }
}

impl Room {
    /// Leaves an entry. The caller then checks once more whether it has to wait.
    pub(crate) fn arm(&self, entry: WaitEntry) {
        let mut entries = self.entries.lock();
        entries.push(entry);
        self.waiting.store(1, Relaxed);
        drop(entries);
        // The store comes before the caller's look at the states; a change of a state comes
        // before the load below. One of the two sees the other.
        fence(SeqCst);
    }

    /// Kicks the operations that wait, if there are any. The caller has changed a state, or freed
    /// frames, by a SeqCst operation or under the lock that the other side takes.
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
