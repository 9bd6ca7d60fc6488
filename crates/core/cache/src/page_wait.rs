//! Waiting until a folio is unlocked, its writeback is over, or its bytes are not lent any more.
//!
//! An entry names the folio *and* the condition for which it waits. A thread kicks the entry only
//! if the thread has made this condition true, or a cut has removed the folio. A needless kick
//! ("spurious") costs an iteration, and in the hashed queues of the kernel of 2003 two operations
//! could kick each other for ever.
//!
//! ```text
//!   arm:      lock shard ─ set WAITERS, if the bit waited for is still set ─ add entry ─ unlock
//!   release:  WAITERS clear: change the state, done (one compare-and-exchange)
//!             WAITERS set:   lock shard ─ change the state ─ take entries out ─ unlock ─ kick
//! ```
//!
//! `arm` and `release` both change the state word, so one of them comes first: either `arm` sees
//! the bit cleared and leaves nothing, or `release` sees WAITERS and finds the entry behind the
//! shard's lock. So an entry exists only while the bit that it waits for is set.

use crate::folio::{FolioId, GUARDS, LOCKED, State, WAITERS, WRITEBACK};
use crate::frames::Frames;
use crate::pin::Pin;
use crate::primitives::{AtomicU64, Mutex, Relaxed};
use nowait_retry::WaitEntry;

/// The condition that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The folio is unlocked.
    Unlocked,
    /// The folio's writeback has ended, with or without an error.
    Written,
    /// No bytes of the folio are lent any more.
    Returned,
}

impl Reason {
    /// Returns the bits of the state that are clear once the condition is true.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Reason::Unlocked => LOCKED,
            Reason::Written => WRITEBACK,
            Reason::Returned => GUARDS,
        }
    }
}

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

#[derive(Debug)]
pub(crate) struct PageWaits {
    shards: Box<[Shard]>,
    armed: AtomicU64,
    kicked: AtomicU64,
}

#[derive(Debug)]
#[repr(align(64))]
struct Shard(Mutex<Vec<Waiter>>);

#[derive(Debug)]
struct Waiter {
    folio: FolioId,
    reason: Reason,
    entry: WaitEntry,
}

/// Counts of the entries that wait for folios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// Entries left.
    pub armed: u64,
    /// Entries taken out to be kicked.
    pub kicked: u64,
}

impl PageWaits {
    pub(crate) fn new() -> PageWaits {
        let zero = || AtomicU64::new(0);
        let shards = (0..SHARDS).map(|_| Shard(Mutex::new(Vec::new()))).collect();
        PageWaits { shards, armed: zero(), kicked: zero() }
    }

    /// Leaves an entry, which is kicked once when the reason comes true or a cut removes the folio.
    /// If the reason is true already, leaves nothing and returns `false`: the caller looks again.
    #[must_use]
    pub(crate) fn arm(
        &self,
        pin: &Pin<'_>,
        reason: Reason,
        make: impl FnOnce() -> WaitEntry,
    ) -> bool {
        // Called before this thread takes the lock, because `make` may run code of the engine.
        let entry = make();
        let mut queue = self.shard(pin.id()).lock();
        if !pin.folio().expect_waiter(reason.bits()) {
            return false;
        }
        queue.push(Waiter { folio: pin.id(), reason, entry });
        self.armed.fetch_add(1, Relaxed);
        true
    }

    /// Sets `set` and clears `clear` in the state of a folio that the caller has locked or is
    /// writing back; returns the state before. Adds to `woken` the entries that waited for a bit of
    /// `clear`, oldest first. The caller kicks them when it has released all of its folios.
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
        let waits_on = self.take_out(&mut queue, id, clear, woken);
        let clear = if waits_on { clear } else { clear | WAITERS };
        folio.change_if(0, 0, set, clear).unwrap_or_else(|state| state)
    }

    /// Unlocks a folio that the caller has locked, and takes it out of use (`Folio::retire`).
    /// Returns the state before. Adds to `woken` all entries that waited for the folio; their
    /// operations will find the folio gone.
    pub(crate) fn retire(&self, frames: &Frames, id: FolioId, woken: &mut Vec<WaitEntry>) -> State {
        let mut queue = self.shard(id).lock();
        self.take_out(&mut queue, id, LOCKED | WRITEBACK | GUARDS, woken);
        frames.folio(id).retire()
    }

    #[inline]
    pub(crate) fn unguard(&self, frames: &Frames, id: FolioId, woken: &mut Vec<WaitEntry>) {
        let folio = frames.folio(id);
        if folio.try_unguard(false).is_ok() {
            return;
        }
        let mut queue = self.shard(id).lock();
        let left = folio.try_unguard(true).unwrap_or_else(|state| state);
        if !left.is_guarded() && !self.take_out(&mut queue, id, GUARDS, woken) {
            folio.clear(WAITERS);
        }
    }

    /// Moves the entries that wait for one of `bits` to `woken`. Returns `true` if other entries
    /// wait for the folio.
    fn take_out(
        &self,
        queue: &mut Vec<Waiter>,
        id: FolioId,
        bits: u64,
        woken: &mut Vec<WaitEntry>,
    ) -> bool {
        let first = woken.len();
        let released =
            |waiting: &mut Waiter| waiting.folio == id && waiting.reason.bits() & bits != 0;
        woken.extend(queue.extract_if(.., released).map(|waiting| waiting.entry));
        self.kicked.fetch_add((woken.len() - first) as u64, Relaxed);
        queue.iter().any(|waiting| waiting.folio == id)
    }

    pub(crate) fn counts(&self) -> WaitCounts {
        WaitCounts { armed: self.armed.load(Relaxed), kicked: self.kicked.load(Relaxed) }
    }

    fn shard(&self, id: FolioId) -> &Mutex<Vec<Waiter>> {
        // Operations often wait for neighbours in memory together: the hash spreads these over the
        // shards.
        let hash = id.get().wrapping_mul(0x9e37_79b9) >> 16;
        &self.shards[hash as usize % SHARDS].0
    }
}

#[cfg(all(test, loom))]
impl PageWaits {
    /// The mistake that `arm` avoids: checks the bit first, and sets WAITERS in a second step.
    pub(crate) fn arm_late(&self, pin: &Pin<'_>, reason: Reason, entry: WaitEntry) -> bool {
        if !pin.state().has(reason.bits()) {
            return false;
        }
        let mut queue = self.shard(pin.id()).lock();
        pin.folio().set(WAITERS);
        queue.push(Waiter { folio: pin.id(), reason, entry });
        true
    }
}
