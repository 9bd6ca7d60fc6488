//! The gate of a mapping: while a change of the file bypasses the cache, no page of the changed
//! part is read into the cache.
//!
//! The gate is checked where a folio is created, under the mapping's lock, and costs a hit nothing.
//! Folios that are in the cache when the gate closes are locked or taken out one by one. (The
//! kernel has `invalidate_lock` for this, which every fill takes.) Source: mm/filemap.c, "locking".

use crate::primitives::{AcqRel, Acquire, AtomicU64, Mutex, Release};
use nowait_retry::WaitEntry;

/// The value of `from` while the gate is open.
const OPEN: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Gate {
    /// How often a change has begun or ended: odd while a change is in progress.
    changes: AtomicU64,
    /// The first page that may not be read into the cache. Changes under the mapping's lock.
    from: AtomicU64,
    /// Operations that wait until the gate opens.
    waiting: Mutex<Vec<WaitEntry>>,
}

impl Default for Gate {
    fn default() -> Gate {
        let (changes, from) = (AtomicU64::new(0), AtomicU64::new(OPEN));
        Gate { changes, from, waiting: Mutex::new(Vec::new()) }
    }
}

impl Gate {
    /// Returns how often a change has begun or ended: odd while a change is in progress.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Returns the first page that may not be read into the cache. The caller holds the mapping's
    /// lock.
    pub(crate) fn closed_from(&self) -> u64 {
        self.from.load(Acquire)
    }

    /// Closes the gate from page `from` on. Returns `false` if it is closed already. The caller
    /// holds the mapping's lock.
    pub(crate) fn close(&self, from: u64) -> bool {
        if self.closed_from() != OPEN {
            return false;
        }
        // A writer that finds the gate closed finds the count changed, too.
        self.changes.fetch_add(1, AcqRel);
        self.from.store(from, Release);
        true
    }

    /// Opens the gate. The caller holds the mapping's lock; after releasing it, the caller kicks
    /// the entries that [`Gate::take_waiting`] returns.
    pub(crate) fn open(&self) {
        self.from.store(OPEN, Release);
        self.changes.fetch_add(1, AcqRel);
    }

    /// Takes out the entries that waited for the gate, after it was opened.
    pub(crate) fn take_waiting(&self) -> Vec<WaitEntry> {
        core::mem::take(&mut *self.waiting.lock())
    }

    /// Leaves an entry, which is kicked once when the gate opens. Returns `false` and leaves
    /// nothing if the gate is open for page `index`.
    pub(crate) fn wait(&self, index: u64, make: impl FnOnce() -> WaitEntry) -> bool {
        if self.closed_from() > index {
            return false;
        }
        // The entry is made before the lock is taken, because making it may run code of the engine.
        let entry = make();
        let mut waiting = self.waiting.lock();
        // The thread that opens the gate takes the entries out afterwards: either it finds this
        // entry, or this thread sees the gate open.
        let closed = self.closed_from() <= index;
        if closed {
            waiting.push(entry);
        }
        closed
    }
}

/// Returns `true` if a change has begun between two counts.
pub(crate) fn has_begun(before: u64, now: u64) -> bool {
    before.div_ceil(2) != now.div_ceil(2)
}
