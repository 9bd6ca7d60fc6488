//! Waiting for a folio: until it is unlocked, or until its writeback is over.
//!
//! An entry lies under the folio *and* the reason it waits for, and is kicked by that event only:
//! a kick that finds nothing new ("spurious") costs an iteration, and in the kernel's hashed
//! queues two operations could kick each other for ever (2.5, "retry storms").
//!
//! ```text
//!   arm:      lock shard ─ set WAITERS, if the bit waited for is still set ─ add entry ─ unlock
//!   release:  WAITERS clear: change the state, done (one compare-and-exchange)
//!             WAITERS set:   lock shard ─ change the state ─ take entries out ─ unlock ─ kick
//! ```
//!
//! Both change the state word, so one comes first: either `arm` sees the bit cleared and leaves
//! nothing, or `release` sees WAITERS and finds the entry behind the shard's lock. Hence an entry
//! exists only while its bit is set, and the release that clears the bit takes all of them.

use crate::folio::{FolioId, LOCKED, State, WAITERS, WRITEBACK};
use crate::frames::Frames;
use crate::pin::Pin;
use crate::sync::{AtomicU64, Mutex, Relaxed};
use nowait_retry::WaitEntry;

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The folio is filled, or no longer changed.
    Unlocked,
    /// The folio has been written, or could not be.
    Written,
}

impl Reason {
    /// Returns the bit of the state that must be cleared.
    pub(crate) fn bit(self) -> u64 {
        match self {
            Reason::Unlocked => LOCKED,
            Reason::Written => WRITEBACK,
        }
    }
}

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// The wait queues of all folios of a cache.
#[derive(Debug)]
pub(crate) struct PageWaits {
    shards: Box<[Shard]>,
    armed: AtomicU64,
    kicked: AtomicU64,
}

/// The queue of those folios whose numbers have the same hash.
#[derive(Debug)]
#[repr(align(64))]
struct Shard(Mutex<Vec<Waiting>>);

#[derive(Debug)]
struct Waiting {
    folio: FolioId,
    reason: Reason,
    entry: WaitEntry,
}

/// How often operations waited for folios, and were kicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// Entries left in queues.
    pub armed: u64,
    /// Entries kicked.
    pub kicked: u64,
}

impl PageWaits {
    /// Makes empty queues.
    pub(crate) fn new() -> PageWaits {
        let zero = || AtomicU64::new(0);
        let shards = (0..SHARDS).map(|_| Shard(Mutex::new(Vec::new()))).collect();
        PageWaits { shards, armed: zero(), kicked: zero() }
    }

    /// Leaves an entry, to be kicked once when the reason comes true. False: it is true already,
    /// nothing was left, look again.
    #[must_use]
    pub(crate) fn arm(
        &self,
        pin: &Pin<'_>,
        reason: Reason,
        make: impl FnOnce() -> WaitEntry,
    ) -> bool {
        // Before the lock: making it may run code of the engine.
        let entry = make();
        let mut queue = self.shard(pin.id()).lock();
        if pin.folio().change_if(reason.bit(), 0, WAITERS, 0).is_err() {
            return false;
        }
        queue.push(Waiting { folio: pin.id(), reason, entry });
        self.armed.fetch_add(1, Relaxed);
        true
    }

    /// Changes the state of a folio that the caller has locked, or writes back. Whoever waited
    /// for a bit of `clear` is added to `woken`, in the order of arming; the caller kicks them
    /// when all folios it has to release are. Returns the state before.
    pub(crate) fn release(
        &self,
        frames: &Frames,
        id: FolioId,
        set: u64,
        clear: u64,
        woken: &mut Vec<WaitEntry>,
    ) -> State {
        let folio = frames.folio(id);
        if let Ok(before) = folio.change_if(0, WAITERS, set, clear) {
            return before;
        }
        let mut queue = self.shard(id).lock();
        let first = woken.len();
        let released =
            |waiting: &mut Waiting| waiting.folio == id && waiting.reason.bit() & clear != 0;
        woken.extend(queue.extract_if(.., released).map(|waiting| waiting.entry));
        self.kicked.fetch_add((woken.len() - first) as u64, Relaxed);
        let waits_on = queue.iter().any(|waiting| waiting.folio == id);
        let clear = if waits_on { clear } else { clear | WAITERS };
        folio.change_if(0, 0, set, clear).unwrap_or_else(|state| state)
    }

    /// Returns how often operations waited and were kicked.
    pub(crate) fn counts(&self) -> WaitCounts {
        WaitCounts { armed: self.armed.load(Relaxed), kicked: self.kicked.load(Relaxed) }
    }

    fn shard(&self, id: FolioId) -> &Mutex<Vec<Waiting>> {
        // Neighbours in memory are often waited for together: spread them.
        let hash = id.get().wrapping_mul(0x9e37_79b9) >> 16;
        &self.shards[hash as usize % SHARDS].0
    }
}

#[cfg(all(test, loom))]
impl PageWaits {
    /// The mistake that `arm` avoids: looks first, arms then.
    pub(crate) fn arm_late(&self, pin: &Pin<'_>, reason: Reason, entry: WaitEntry) -> bool {
        if !pin.state().has(reason.bit()) {
            return false;
        }
        let mut queue = self.shard(pin.id()).lock();
        pin.folio().set(WAITERS);
        queue.push(Waiting { folio: pin.id(), reason, entry });
        true
    }
}
