//! The gate of a mapping: while a file is changed past its cache, no pages of that part are brought
//! in.
//!
//! It is looked at where a folio is created, under the mapping's lock, and costs a hit nothing:
//! what was in the cache when the gate was closed is locked, or taken out, folio by folio. (The
//! kernel has `invalidate_lock` for this, which every fill takes.) Source: mm/filemap.c, "locking".

use crate::primitives::{AcqRel, Acquire, AtomicU64, Mutex, Release};
use nowait_retry::WaitEntry;

/// First closed page of a gate that is open.
const OPEN: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Gate {
    /// Begun and ended changes: odd while one is going on.
    changes: AtomicU64,
    /// The first page that may not be brought in; changes under the mapping's lock.
    from: AtomicU64,
    /// Operations that wait for its opening.
    waiting: Mutex<Vec<WaitEntry>>,
}

impl Default for Gate {
    fn default() -> Gate {
        let (changes, from) = (AtomicU64::new(0), AtomicU64::new(OPEN));
        Gate { changes, from, waiting: Mutex::new(Vec::new()) }
    }
}

impl Gate {
    /// Returns how many changes have begun or ended: odd while one is going on.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Returns the first page that may not be brought in, with the mapping's lock held.
    pub(crate) fn closed_from(&self) -> u64 {
        self.from.load(Acquire)
    }

    /// Closes it from page `from` on, with the mapping's lock held. False: it is closed already.
    pub(crate) fn close(&self, from: u64) -> bool {
        if self.closed_from() != OPEN {
            return false;
        }
        // A writer that finds the gate closed finds the count changed, too.
        self.changes.fetch_add(1, AcqRel);
        self.from.store(from, Release);
        true
    }

    /// Opens it, with the mapping's lock held; then the entries that waited are to be kicked,
    /// without it.
    pub(crate) fn open(&self) {
        self.from.store(OPEN, Release);
        self.changes.fetch_add(1, AcqRel);
    }

    /// Takes out the entries that wait for the opening, after it.
    pub(crate) fn take_waiting(&self) -> Vec<WaitEntry> {
        core::mem::take(&mut *self.waiting.lock())
    }

    /// Leaves an entry, to be kicked once when the gate opens. False: it is open for page `index`,
    /// nothing was left.
    pub(crate) fn wait(&self, index: u64, make: impl FnOnce() -> WaitEntry) -> bool {
        if self.closed_from() > index {
            return false;
        }
        // Before the lock: making it may run code of the engine.
        let entry = make();
        let mut waiting = self.waiting.lock();
        // The thread that opens it takes them out after that: one of both sees the other.
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
