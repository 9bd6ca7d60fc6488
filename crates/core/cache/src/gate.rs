//! The gate of a mapping: while a change of the file bypasses the cache, no operation reads a page
//! of the changed part into the cache.
//!
//! An operation checks the gate under the mapping's lock when it creates a folio, so reads of
//! cached pages do not check it. The change locks or removes folios that are in the cache. (In the
//! kernel, each fill takes `invalidate_lock` for this.) Source: Linux mm/filemap.c, "locking".

use crate::primitives::{AcqRel, Acquire, AtomicU64, Mutex, Release};
use nowait_retry::WaitEntry;

const OPEN: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Gate {
    /// Number of times that the gate was closed or opened: odd while it is closed.
    changes: AtomicU64,
    /// The first page that may not be read into the cache; changed under the mapping's lock.
    from: AtomicU64,
    waiting: Mutex<Vec<WaitEntry>>,
}

impl Default for Gate {
    fn default() -> Gate {
        let (changes, from) = (AtomicU64::new(0), AtomicU64::new(OPEN));
        Gate { changes, from, waiting: Mutex::new(Vec::new()) }
    }
}

impl Gate {
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Returns the first page that may not be read into the cache, or `OPEN`. The value may change,
    /// unless the caller holds the mapping's lock.
    pub(crate) fn closed_from(&self) -> u64 {
        self.from.load(Acquire)
    }

    /// Returns `false` if the gate is closed already. The caller holds the mapping's lock.
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

    /// The caller holds the mapping's lock. After releasing it, the caller kicks the entries of
    /// [`Gate::take_waiting`].
    pub(crate) fn open(&self) {
        self.from.store(OPEN, Release);
        self.changes.fetch_add(1, AcqRel);
    }

    pub(crate) fn take_waiting(&self) -> Vec<WaitEntry> {
        core::mem::take(&mut *self.waiting.lock())
    }

    /// Leaves an entry, which is kicked once when the gate opens. If the gate is open for page
    /// `index`, leaves nothing and returns `false`.
    pub(crate) fn wait(&self, index: u64, make: impl FnOnce() -> WaitEntry) -> bool {
        if self.closed_from() > index {
            return false;
        }
        // Called before this thread takes the lock, because `make` may run code of the engine.
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

/// Returns `true` if a change has begun between two readings of [`Gate::changes`].
pub(crate) fn has_begun(before: u64, now: u64) -> bool {
    before.div_ceil(2) != now.div_ceil(2)
}
