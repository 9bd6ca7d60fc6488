//! Operations that wait for a frame, or until fewer frames are dirty or being read from a device.

use crate::primitives::{AtomicU32, Mutex, Relaxed, SeqCst, fence};
use nowait_retry::WaitEntry;

/// A list of wait entries; [`Room::notice`] kicks all of them. An operation leaves an entry if it
/// finds no free frame, or if too many frames are dirty or being read.
#[derive(Debug)]
pub(crate) struct Room {
    /// 1 if entries wait, else 0. `notice` reads it on each call without the lock; writes are rare.
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
        // The store above comes before the caller's next check. In `notice`, the other thread's
        // change comes before the load. So at least one of the two threads sees the change of the
        // other.
        fence(SeqCst);
    }

    /// Kicks all operations that wait, if there are any. The caller has changed a state or freed
    /// frames: by a SeqCst operation, or under the lock that the waiting operation takes for its
    /// check.
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
