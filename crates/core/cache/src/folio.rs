//! The header of a folio: a run of frames that holds consecutive pages of one file.
//!
//! One word of 64 bits holds the state of the folio:
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0..24 | PINS | number of pins; while it is not zero, the memory is not reused |
//! | 24..26 | FREQUENCY | counted accesses, 0 to 3; the eviction policy lowers the count |
//! | 32 | LOCKED | an operation has locked the folio, to fill, change or cut it |
//! | 33 | UPTODATE | the memory holds the file's bytes |
//! | 34 | DIRTY | a page is newer than the file, and no writeback is in progress |
//! | 35 | WRITEBACK | the cache writes the folio to the file: its memory must not change |
//! | 36 | ERROR | the last writeback failed and left the folio dirty, or the fill failed |
//! | 37 | WAITERS | entries that wait for the folio may lie in the wait queues |
//! | 38 | MARKER | a read of an open file that finds this bit plans the next readahead |
//! | 39 | DETACHED | the folio left its tree while pinned; the drop of the last pin frees it |
//! | 40 | FROZEN | the folio is free, about to be freed, or new; it cannot be pinned |
//! | 41..57 | GUARDS | number of loans; while it is not zero, the memory must not change |
//!
//! The pool frees no header while it lives. So a look-up without a lock may read the header of a
//! folio that is free, or that holds other pages by now. To notice that, the look-up first pins the
//! folio and then compares the identity (mapping, index). The identity changes only while FROZEN is
//! set, and no thread freezes a folio that another thread has pinned.

use crate::pages::Pages;
use crate::primitives::{AcqRel, Acquire, AtomicU32, AtomicU64, Relaxed, Release, SeqCst};
use core::num::NonZeroU32;
use nowait_sys::Errno;

const PINS: u64 = (1 << 24) - 1;
const FREQUENCY_ONE: u64 = 1 << 24;
const FREQUENCY: u64 = 3 << 24;

pub(crate) const LOCKED: u64 = 1 << 32;
pub(crate) const UPTODATE: u64 = 1 << 33;
pub(crate) const DIRTY: u64 = 1 << 34;
pub(crate) const WRITEBACK: u64 = 1 << 35;
pub(crate) const ERROR: u64 = 1 << 36;
pub(crate) const WAITERS: u64 = 1 << 37;
pub(crate) const MARKER: u64 = 1 << 38;
const DETACHED: u64 = 1 << 39;
const FROZEN: u64 = 1 << 40;
const GUARD_ONE: u64 = 1 << 41;
pub(crate) const GUARDS: u64 = ((1 << 16) - 1) << 41;

/// The number of a folio's first frame, counted from one. A zero in a leaf of the tree means "no
/// folio".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FolioId(NonZeroU32);

impl FolioId {
    pub(crate) fn of_frame(frame: u32) -> FolioId {
        FolioId(NonZeroU32::new(frame + 1).expect("fewer than 2^32 - 1 frames"))
    }

    /// Makes an id of a number; `None` for zero.
    #[inline]
    pub fn new(number: u32) -> Option<FolioId> {
        NonZeroU32::new(number).map(FolioId)
    }

    /// Returns the number, which is above zero.
    #[inline]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The number of the first frame, counted from zero.
    #[inline]
    pub(crate) fn frame(self) -> u32 {
        self.0.get() - 1
    }
}

/// A value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State(pub(crate) u64);

impl State {
    #[inline]
    pub(crate) fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// Returns `true` if an operation has locked the folio.
    pub fn is_locked(self) -> bool {
        self.has(LOCKED)
    }

    /// Returns `true` if the folio holds the file's bytes.
    pub fn is_uptodate(self) -> bool {
        self.has(UPTODATE)
    }

    /// Returns `true` if a page of the folio is newer than the file, and no writeback is in
    /// progress.
    pub fn is_dirty(self) -> bool {
        self.has(DIRTY)
    }

    /// Returns `true` if the folio is under writeback.
    pub fn is_writeback(self) -> bool {
        self.has(WRITEBACK)
    }

    /// Returns `true` if the folio's fill failed, or its last writeback failed and left it dirty.
    pub fn is_error(self) -> bool {
        self.has(ERROR)
    }

    /// Returns `true` if an access to the folio should start the next readahead.
    pub fn is_marker(self) -> bool {
        self.has(MARKER)
    }

    pub(crate) fn is_detached(self) -> bool {
        self.has(DETACHED)
    }

    /// Returns `true` if the folio is free, about to be freed, or new and not yet in a tree.
    pub fn is_frozen(self) -> bool {
        self.has(FROZEN)
    }

    /// Returns the number of pins.
    pub fn pins(self) -> u32 {
        (self.0 & PINS) as u32
    }

    /// Returns `true` if bytes of the folio are lent, and must not change.
    pub fn is_guarded(self) -> bool {
        self.has(GUARDS)
    }

    /// Returns the counter of accesses, 0 to 3.
    pub fn frequency(self) -> u32 {
        ((self.0 & FREQUENCY) / FREQUENCY_ONE) as u32
    }
}

impl core::fmt::Debug for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names = [
            (LOCKED, " locked"),
            (UPTODATE, " uptodate"),
            (DIRTY, " dirty"),
            (WRITEBACK, " writeback"),
            (ERROR, " error"),
            (WAITERS, " waiters"),
            (MARKER, " marker"),
            (DETACHED, " detached"),
            (FROZEN, " frozen"),
            (GUARDS, " guarded"),
        ];
        write!(f, "pins {} frequency {}", self.pins(), self.frequency())?;
        let mut set = names.iter().filter(|(bit, _)| self.has(*bit));
        set.try_for_each(|(_, name)| f.write_str(name))
    }
}

/// The header of a frame, which exists as long as the pool. A folio uses the header of its first
/// frame.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(64)))]
pub struct Folio {
    state: AtomicU64,
    index: AtomicU64,
    mapping: AtomicU32,
    order: AtomicU32,
    /// A bit for each page that is newer than the file. An operation that has locked the folio sets
    /// bits. The end of a writeback or cut clears bits under the mapping's lock.
    dirty: AtomicU64,
    /// The number of runs of dirty pages that the folio's writeback still has to end.
    runs: AtomicU32,
    /// The error of the last writeback that failed.
    errno: AtomicU32,
    /// Ended writebacks of all folios that have had this header.
    written: AtomicU32,
    #[cfg(loom)]
    pub(crate) content: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Folio>() == 64);

impl Folio {
    pub(crate) fn new() -> Folio {
        let zero = || AtomicU32::new(0);
        Folio {
            state: AtomicU64::new(FROZEN),
            index: AtomicU64::new(0),
            mapping: zero(),
            order: zero(),
            dirty: AtomicU64::new(0),
            runs: zero(),
            errno: zero(),
            written: zero(),
            #[cfg(loom)]
            content: zero(),
        }
    }

    /// Returns the folio's current state.
    #[inline]
    pub fn state(&self) -> State {
        State(self.state.load(Acquire))
    }

    /// Returns the index of the folio's first page. Valid while the caller has pinned or locked the
    /// folio.
    #[inline]
    pub fn index(&self) -> u64 {
        self.index.load(Relaxed)
    }

    /// Returns the number of the folio's mapping. Valid while the caller has pinned the folio.
    #[inline]
    pub fn mapping(&self) -> u32 {
        self.mapping.load(Relaxed)
    }

    /// Returns the order of the folio, which has 2^order pages. Valid while the caller has pinned
    /// or locked the folio, or owns it.
    #[inline]
    pub fn order(&self) -> u32 {
        self.order.load(Relaxed)
    }

    /// Returns the number of pages.
    #[inline]
    pub fn pages(&self) -> u64 {
        1 << self.order()
    }

    /// While the folio is pinned, the result does not change.
    #[inline]
    pub(crate) fn holds(&self, mapping: u32, index: u64) -> bool {
        self.mapping() == mapping && index >> self.order() == self.index() >> self.order()
    }

    /// Returns the error of the last writeback that failed. Valid if a page of the folio is newer
    /// than the file and [`State::is_error`] is `true`.
    pub fn errno(&self) -> Errno {
        Errno::new(self.errno.load(Relaxed) as i32)
    }

    /// Returns the count of ended writebacks. If it has changed since an earlier call, a writeback
    /// has ended meanwhile.
    pub fn written(&self) -> u32 {
        self.written.load(Acquire)
    }

    /// Returns the pages that are newer than the file. Valid while the folio is locked or under
    /// writeback.
    pub fn dirty_pages(&self) -> Pages {
        Pages(self.dirty.load(Relaxed))
    }

    pub(crate) fn all_pages(&self) -> Pages {
        Pages::range(0, self.pages() as u32)
    }

    /// The caller has locked the folio.
    #[inline]
    pub(crate) fn add_dirty(&self, pages: Pages) {
        self.dirty.store(self.dirty.load(Relaxed) | pages.0, Relaxed);
    }

    /// Removes pages from the dirty ones, and returns the rest. The caller holds the mapping's
    /// lock.
    pub(crate) fn clean(&self, pages: Pages) -> Pages {
        let left = self.dirty_pages().without(pages);
        self.dirty.store(left.0, Relaxed);
        left
    }

    /// The caller holds the mapping's lock.
    pub(crate) fn begin_runs(&self) {
        let count = self.dirty_pages().runs_count();
        debug_assert!(count > 0, "a dirty folio has dirty pages");
        self.runs.store(count, Relaxed);
    }

    /// Returns `true` if that was the last run of the writeback. The caller holds the mapping's
    /// lock.
    pub(crate) fn end_run(&self) -> bool {
        let left = self.runs.load(Relaxed) - 1;
        self.runs.store(left, Relaxed);
        left == 0
    }

    /// The caller sets ERROR at the end of the writeback.
    pub(crate) fn note_error(&self, errno: Errno) {
        self.errno.store(errno.raw() as u32, Relaxed);
    }

    /// Counts the end of a writeback. The caller has stored the outcome before, and clears
    /// WRITEBACK afterwards. So a thread that sees the new count also sees the outcome.
    pub(crate) fn note_written(&self) {
        self.written.fetch_add(1, Release);
    }

    pub(crate) fn set_order(&self, order: u32) {
        self.order.store(order, Relaxed);
    }

    /// Gives a frozen folio its identity and the state `bits`. The folio belongs to the caller and
    /// is in no tree yet.
    pub(crate) fn publish(&self, mapping: u32, index: u64, bits: u64) {
        self.mapping.store(mapping, Relaxed);
        self.index.store(index, Relaxed);
        self.dirty.store(0, Relaxed);
        // Release: a thread that pins the folio also sees the identity.
        self.state.store(bits, Release);
    }

    /// Pins the folio for an access to page `index`, and returns the state before. Returns `None`
    /// if the folio is frozen or detached, or has too many pins. After `Some` the caller compares
    /// the identity, because the header may belong to another folio.
    ///
    /// Counts the access if the folio is uptodate and `index` is its first page. If accesses to all
    /// pages counted, each folio of a file that is read in order by small requests would look hot
    /// (docs/eviction.md).
    #[inline]
    pub(crate) fn try_pin(&self, index: u64) -> Option<State> {
        self.pin(self.warmer(index), 0, 0)
    }

    /// The header may belong to another folio by now.
    #[inline]
    fn warmer(&self, index: u64) -> u64 {
        if self.index() == index { FREQUENCY_ONE } else { 0 }
    }

    /// Pins the folio as [`Folio::try_pin`] does, but counts no access.
    pub(crate) fn try_hold(&self) -> Option<State> {
        self.pin(0, 0, 0)
    }

    /// Like [`Folio::try_pin`], and also locks the folio, unless the returned state is locked,
    /// under writeback or lent.
    #[inline]
    pub(crate) fn try_pin_locked(&self, index: u64) -> Option<State> {
        self.pin(self.warmer(index), LOCKED, LOCKED | WRITEBACK | GUARDS)
    }

    /// Pins the folio for an access to page `index`, and guards its bytes against changes. Returns
    /// `false` if the folio is frozen, detached, locked or not uptodate, or has too many pins or
    /// guards. Also returns `false` if an entry may wait for the folio: new guards could keep a
    /// waiting writer away for ever. After `true` the caller compares the identity.
    #[inline]
    pub(crate) fn try_pin_guarded(&self, index: u64) -> bool {
        let warmer = self.warmer(index);
        let mut old = self.state.load(Relaxed);
        loop {
            let refused = old & UPTODATE == 0 || old & (LOCKED | WAITERS | FROZEN | DETACHED) != 0;
            if refused || old & GUARDS == GUARDS || old & PINS == PINS {
                return false;
            }
            let warmer = if old & FREQUENCY == FREQUENCY { 0 } else { warmer };
            let new = old + 1 + GUARD_ONE + warmer;
            // Acquire: this thread sees the identity and bytes that other threads wrote before they
            // published or unlocked the folio.
            match self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Takes off a guard and a pin. If an entry may wait for the folio, or the folio is detached,
    /// changes nothing and returns `false`.
    #[inline]
    pub(crate) fn try_unpin_guarded(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        loop {
            debug_assert!(old & GUARDS != 0 && old & PINS != 0, "given back too often");
            if old & (WAITERS | DETACHED) != 0 {
                return false;
            }
            let new = old - GUARD_ONE - 1;
            // Release: reads through the guard come before any later change or reuse of the bytes.
            // SeqCst: this change comes before the check for operations that wait for frames
            // (`Frames::notice_room`).
            match self.state.compare_exchange_weak(old, new, SeqCst, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Takes off a guard, and returns the new state. Changes nothing and returns `Err` if an entry
    /// may wait for the folio, but `waited_for` is `false`.
    #[inline]
    pub(crate) fn try_unguard(&self, waited_for: bool) -> Result<State, State> {
        let mut old = self.state.load(Relaxed);
        loop {
            debug_assert!(old & GUARDS != 0, "given back too often");
            if old & WAITERS != 0 && !waited_for {
                return Err(State(old));
            }
            let new = old - GUARD_ONE;
            // Release: reads through the guard come before any later change of the bytes.
            match self.state.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return Ok(State(new)),
                Err(now) => old = now,
            }
        }
    }

    /// Sets WAITERS if any of `bits` is set. Otherwise changes nothing and returns `false`.
    pub(crate) fn expect_waiter(&self, bits: u64) -> bool {
        let mut old = self.state.load(Acquire);
        while old & bits != 0 {
            match self.state.compare_exchange_weak(old, old | WAITERS, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Pins the folio, and returns the state before. If no bit of `unless` is set, also sets
    /// `bits`, and adds `warmer` to the access counter of an uptodate folio, up to 3.
    #[inline]
    fn pin(&self, warmer: u64, bits: u64, unless: u64) -> Option<State> {
        let mut old = self.state.load(Relaxed);
        loop {
            // The count of pins is full only if the program has leaked 16 million pins of the
            // folio.
            if old & (FROZEN | DETACHED) != 0 || old & PINS == PINS {
                return None;
            }
            let free = old & unless == 0;
            let set = if free { bits } else { 0 };
            // An operation that cannot set its bits waits; its access counts when it comes again.
            let counts = free && old & UPTODATE != 0 && old & FREQUENCY != FREQUENCY;
            let warmer = if counts { warmer } else { 0 };
            let new = (old + 1 + warmer) | set;
            // Acquire: this thread sees the identity and bytes that other threads wrote before they
            // published or unlocked the folio.
            match self.state.compare_exchange_weak(old, new, Acquire, Relaxed) {
                Ok(_) => return Some(State(old)),
                Err(now) => old = now,
            }
        }
    }

    /// Takes off a pin. Returns `true` if it was the last pin of a detached folio: the folio is
    /// frozen now, and the caller must free it.
    #[inline]
    #[must_use]
    pub(crate) fn unpin(&self) -> bool {
        // Release: accesses through the pin come before any reuse of the memory. SeqCst: this
        // change comes before the check for operations that wait for frames (`Frames::unpin`).
        let old = self.state.fetch_sub(1, SeqCst);
        debug_assert!(old & PINS != 0, "unpinned too often");
        if old & DETACHED == 0 || old & PINS != 1 {
            return false;
        }
        // No thread can pin a detached folio, so the calling thread owns it.
        self.state.store(FROZEN, Relaxed);
        true
    }

    /// If all bits of `if_set` and no bits of `if_clear` are set, sets `set` and clears `clear`.
    /// Returns the state before: as `Err` if it changed nothing.
    pub(crate) fn change_if(
        &self,
        if_set: u64,
        if_clear: u64,
        set: u64,
        clear: u64,
    ) -> Result<State, State> {
        let mut old = self.state.load(Relaxed);
        loop {
            if old & if_set != if_set || old & if_clear != 0 {
                return Err(State(old));
            }
            match self.state.compare_exchange_weak(old, (old | set) & !clear, AcqRel, Acquire) {
                Ok(_) => return Ok(State(old)),
                Err(now) => old = now,
            }
        }
    }

    pub(crate) fn set(&self, bits: u64) -> State {
        State(self.state.fetch_or(bits, AcqRel))
    }

    pub(crate) fn clear(&self, bits: u64) -> State {
        State(self.state.fetch_and(!bits, AcqRel))
    }

    /// Lowers the counter of accesses by one if it is not zero, and returns its old value.
    pub fn cool(&self) -> u32 {
        let mut old = self.state.load(Relaxed);
        while old & FREQUENCY != 0 {
            let new = old - FREQUENCY_ONE;
            match self.state.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        State(old).frequency()
    }

    /// Sets the counter of accesses to zero, and returns its old value.
    pub fn cool_down(&self) -> u32 {
        if self.state().frequency() == 0 {
            return 0;
        }
        State(self.state.fetch_and(!FREQUENCY, Relaxed)).frequency()
    }

    /// Freezes the folio if it has exactly `pins` pins, which all belong to the caller, and no bit
    /// of `busy`. Returns `false` otherwise, and if the folio is frozen or detached.
    pub(crate) fn freeze(&self, pins: u64, busy: u64) -> bool {
        let mut old = self.state.load(Relaxed);
        loop {
            if old & PINS != pins || old & (busy | FROZEN | DETACHED) != 0 {
                return false;
            }
            // Acquire: accesses by threads that took off their pins are over.
            match self.state.compare_exchange_weak(old, FROZEN, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Unlocks the folio and takes it out of use, as [`Folio::take`] does. The caller has locked
    /// it, holds the lock of its wait queue, and has removed all its entries there.
    pub(crate) fn retire(&self) -> State {
        let mut old = self.state.load(Relaxed);
        loop {
            let detached = (old | DETACHED) & !(LOCKED | WAITERS);
            let new = if old & PINS != 0 { detached } else { FROZEN };
            match self.state.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return State(old),
                Err(now) => old = now,
            }
        }
    }

    /// Takes the folio out of use, and returns the state before. Changes nothing if a bit of `busy`
    /// is set. A folio without pins becomes frozen, and the caller frees it. A folio with pins
    /// becomes detached, and the thread that takes off the last pin frees it.
    ///
    /// The caller holds the mapping's lock, and then removes the folio from the tree.
    pub(crate) fn take(&self, busy: u64) -> Option<State> {
        let mut old = self.state.load(Relaxed);
        loop {
            if old & busy != 0 {
                return None;
            }
            let new = if old & PINS != 0 { old | DETACHED } else { FROZEN };
            match self.state.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return Some(State(old)),
                Err(now) => old = now,
            }
        }
    }
}

#[cfg(all(test, loom))]
impl Folio {
    /// The mistake that `try_pin_guarded` avoids: checks the state first, and counts the guard in a
    /// second step.
    pub(crate) fn guard_unchecked(&self) -> bool {
        let state = self.state();
        let free = state.is_uptodate() && !state.has(LOCKED | WAITERS);
        if free {
            self.state.fetch_add(GUARD_ONE, AcqRel);
        }
        free
    }
}
