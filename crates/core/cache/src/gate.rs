//! The gate of a mapping: while a change of the file bypasses the cache, no operation reads a page
//! of the changed part into the cache.
//!
//! An operation checks the gate under the mapping's lock when it creates a folio, so a read of
//! cached pages does not check it. Folios that are in the cache when the gate closes remain: the
//! change locks them, or takes them out, one by one. (The kernel has `invalidate_lock` for this,
//! which every fill takes.) Source: Linux mm/filemap.c, "locking".

use crate::primitives::{AcqRel, Acquire, AtomicU64, Mutex, Release};
use nowait_retry::WaitEntry;

/// The value of `from` while the gate is open.
const OPEN: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Gate {
    /// How often the gate was closed or opened: odd while it is closed.
    changes: AtomicU64,
    /// The first page that may not be read into the cache. Stores happen under the mapping's lock.
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
    /// Returns how often the gate was closed or opened: odd while it is closed.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Returns the first page that may not be read into the cache; `OPEN` if the gate is open. The
    /// value can change unless the caller holds the mapping's lock.
    pub(crate) fn closed_from(&self) -> u64 {
        self.from.load(Acquire)
    }

    /// Closes the gate from page `from` on. If the gate is closed already, changes nothing and
    /// returns `false`. The caller holds the mapping's lock.
    pub(crate) fn close(&self, from: u64) -> bool {
        if self.closed_from() != OPEN {
            return false;
        }
        // The count changes first: a thread that finds the gate closed also finds the count
        // changed.
        self.changes.fetch_add(1, AcqRel);
        self.from.store(from, Release);
        true
    }

    /// Opens the gate. The caller holds the mapping's lock. After releasing it, the caller kicks
    /// the entries that [`Gate::take_waiting`] returns.
    pub(crate) fn open(&self) {
        self.from.store(OPEN, Release);
        self.changes.fetch_add(1, AcqRel);
    }

    /// Takes out the entries that wait for the gate. The caller has opened it, and kicks them.
    pub(crate) fn take_waiting(&self) -> Vec<WaitEntry> {
        core::mem::take(&mut *self.waiting.lock())
    }

    /// Leaves an entry, which is kicked once when the gate opens, and returns `true`. If the gate
    /// is open for page `index`, leaves nothing and returns `false`.
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

/// Returns `true` if a change has begun between the readings `before` and `now` of
/// [`Gate::changes`].
pub(crate) fn has_begun(before: u64, now: u64) -> bool {
    before.div_ceil(2) != now.div_ceil(2)
}
