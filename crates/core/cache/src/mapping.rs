//! The cached pages of one file: the tree, and the state changes of its folios.
//!
//! ```text
//!                  create_missing                  filled(ok)
//!        (missing) ──────────────► LOCKED ─────────────────────► UPTODATE ◄──────────┐
//!            ▲                       │ filled(failed)             │   ▲             │
//!            │                       ▼                  lock, copy│   │written(ok)  │ lock,
//!            │                     ERROR: the next reader         ▼   │             │ copy
//!            │ evict, invalidate   locks it and tries again      DIRTY ──► WRITEBACK │
//!            │ truncate (all states but LOCKED, WRITEBACK)        ▲             │    │
//!            └──────────────────────────────────────────────      └─────────────┘    │
//!                                                          written(failed): with ERROR
//! ```
//!
//! A hit is `find`, which takes no lock and allocates nothing. A thread changes the tree and its
//! tags only under the mapping's lock, and releases the lock before it waits for I/O. No thread
//! removes from the tree a folio that is under writeback, or that another operation has locked.

use crate::FRAME_BYTES;
use crate::buddy::ORDER_MAX;
use crate::cache::Cache;
use crate::folio::{ERROR, Folio, FolioId, GUARDS, LOCKED, UPTODATE, WRITEBACK};
use crate::frames::{Ahead, NoFrames};
use crate::gate::Gate;
use crate::mistake::{Mistake, makes};
use crate::nodes::BITS;
use crate::page_wait::Reason;
use crate::pin::Pin;
use crate::primitives::{Arc, Mutex};
use crate::share::{Counts, Device, Dirt};
use crate::tree::{Tag, Tree, TreeLock};
use nowait_retry::WaitEntry;
use nowait_sys::{
    Errno,
    mistake::{self as planted, Mistake as Planted},
};

/// The cached pages of one file.
#[derive(Debug)]
pub struct Mapping {
    cache: Arc<Cache>,
    number: u32,
    tree: Tree,
    lock: Mutex<TreeLock>,
    dirt: Dirt,
    device: Arc<Device>,
    gate: Gate,
}

/// A folio that the caller has to wait for.
#[derive(Debug)]
pub struct Busy<'a> {
    /// The folio.
    pub pin: Pin<'a>,
    /// The condition to wait for.
    pub reason: Reason,
}

impl Mapping {
    /// Makes a mapping without pages, for a file on the device with number 0.
    pub fn new(cache: &Arc<Cache>) -> Arc<Mapping> {
        Mapping::on_device(cache, 0)
    }

    pub(crate) fn on_device(cache: &Arc<Cache>, device: u64) -> Arc<Mapping> {
        let device = cache.devices.with_number(device);
        cache.register(|number| {
            let (tree, lock) = (Tree::new(), Mutex::new(TreeLock::new()));
            let (dirt, gate) = (Dirt::default(), Gate::default());
            Arc::new(Mapping { cache: cache.clone(), number, tree, lock, dirt, device, gate })
        })
    }

    fn counts(&self) -> Counts<'_> {
        Counts([&self.dirt, &self.device.dirt, &self.cache.dirt])
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn has_idle_device(&self) -> bool {
        self.device.dirt.writing() == 0
    }

    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        self.counts().must_wait(self.cache.frames.total())
    }

    #[inline]
    pub(crate) fn must_wait_to_read(&self) -> bool {
        self.counts().must_wait_to_read(self.cache.frames.total())
    }

    /// The caller holds the lock of the I/Os.
    pub(crate) fn count_reads(&self, frames: u64, begins: bool) {
        match begins {
            true => self.counts().reads(frames),
            false => self.counts().has_read(frames),
        }
    }

    /// Returns the mapping's cache.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Returns the mapping's number, above zero. No other living mapping of the cache has it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Pins and returns the folio that holds page `index`, without a lock. Counts an access if this
    /// is the first page of an uptodate folio. `None`: the page is missing, or the tree changed
    /// meanwhile; [`Mapping::look_up`] tells which.
    #[inline]
    pub fn find(&self, index: u64) -> Option<Pin<'_>> {
        self.pin(self.tree.find(&self.cache.nodes, index), index)
    }

    /// Like [`Mapping::find`], but counts no access.
    #[inline]
    pub fn find_cold(&self, index: u64) -> Option<Pin<'_>> {
        let number = self.tree.find(&self.cache.nodes, index);
        let (id, folio) = self.cache.frames.candidate(number)?;
        folio.try_hold()?;
        self.identified(id, index)
    }

    /// Pins and returns the folio that holds page `index`, and counts no access. `None`: the page
    /// is missing.
    pub fn look_up(&self, index: u64) -> Option<Pin<'_>> {
        self.find_cold(index).or_else(|| {
            // No folio leaves the tree while this thread holds the lock, so a folio of the tree can
            // be pinned.
            let _lock = self.lock.lock();
            self.find_cold(index)
        })
    }

    /// Like [`Mapping::find`], and also locks the folio for a change. `Err`: the condition that the
    /// caller has to wait for, because the folio is locked, under writeback or lent.
    #[inline]
    pub fn find_to_write(&self, index: u64) -> Option<(Pin<'_>, Result<(), Reason>)> {
        let number = self.tree.find(&self.cache.nodes, index);
        let (id, folio) = self.cache.frames.candidate(number)?;
        let before = folio.try_pin_locked(index)?;
        let pin = Pin::adopt(&self.cache.frames, id);
        let outcome = match before {
            _ if before.is_locked() => Err(Reason::Unlocked),
            _ if before.is_writeback()
                && makes(Mistake::WriteIntoWriteback)
                && folio.change_if(0, LOCKED, LOCKED, 0).is_ok() =>
            {
                Ok(())
            }
            _ if before.is_writeback() => Err(Reason::Written),
            _ if before.is_guarded() => Err(Reason::Returned),
            _ => Ok(()),
        };
        if !folio.holds(self.number, index) {
            if outcome.is_ok() {
                self.unlock_strange(id);
            }
            return None;
        }
        Some((pin, outcome))
    }

    /// Unlocks a folio that the caller has locked. Adds to `woken` the entries that waited for the
    /// lock; the caller kicks them.
    pub fn unlock(&self, id: FolioId, woken: &mut Vec<WaitEntry>) {
        self.release(id, 0, LOCKED, woken);
    }

    #[cold]
    fn unlock_strange(&self, id: FolioId) {
        let mut woken = Vec::new();
        self.unlock(id, &mut woken);
        woken.into_iter().for_each(WaitEntry::wake);
    }

    /// Like [`Mapping::find`], with a guard: the folio's bytes do not change until the caller gives
    /// the guard back. Also returns `None` if the folio is locked or not uptodate, or an entry may
    /// wait for it.
    #[inline]
    pub(crate) fn find_guarded(&self, index: u64) -> Option<Pin<'_>> {
        let number = self.tree.find(&self.cache.nodes, index);
        let (id, folio) = self.cache.frames.candidate(number)?;
        if !folio.try_pin_guarded(index) {
            return None;
        }
        let pin = Pin::adopt(&self.cache.frames, id);
        if !pin.folio().holds(self.number, index) {
            self.give_back_guard(pin);
            return None;
        }
        Some(pin)
    }

    /// Takes off the guard and the pin of [`Mapping::find_guarded`]. If the folio has no guard
    /// left, kicks the operations that waited for that.
    #[inline]
    pub(crate) fn give_back_guard(&self, pin: Pin<'_>) {
        if pin.folio().try_unpin_guarded() {
            pin.forget();
            self.cache.frames.notice_room();
            return;
        }
        let mut woken = Vec::new();
        self.cache.waits.unguard(&self.cache.frames, pin.id(), &mut woken);
        drop(pin);
        woken.into_iter().for_each(WaitEntry::wake);
    }

    /// First step of a batch of look-ups: returns the number of the folio that `find` may find, or
    /// 0, and prefetches its header.
    #[inline]
    pub fn prefetch(&self, index: u64) -> u32 {
        let number = self.tree.find(&self.cache.nodes, index);
        self.cache.frames.prefetch_header(number);
        number
    }

    /// Second step: prefetches the bytes that the caller will read first, of the `len` bytes at
    /// byte `offset` of the file. The folio with this number should hold them.
    #[inline]
    pub fn prefetch_data(&self, number: u32, offset: u64, len: usize, what: Ahead) {
        self.cache.frames.prefetch_data(number, offset, len, what);
    }

    /// Last step, like [`Mapping::find`]: pins the folio with this number if it holds page `index`.
    #[inline]
    pub fn pin(&self, number: u32, index: u64) -> Option<Pin<'_>> {
        let (id, folio) = self.cache.frames.candidate(number)?;
        folio.try_pin(index)?;
        self.identified(id, index)
    }

    /// Takes over a pin that the caller has counted. If the folio does not hold page `index`, takes
    /// the pin off and returns `None`.
    #[inline]
    fn identified(&self, id: FolioId, index: u64) -> Option<Pin<'_>> {
        let pin = Pin::adopt(&self.cache.frames, id);
        pin.folio().holds(self.number, index).then_some(pin)
    }

    /// Creates locked folios in the gaps from page `from` to before `end`, and locks existing
    /// folios there whose fill failed. Adds both to `created`, in ascending order. The caller fills
    /// them, and ends each fill by [`Mapping::filled`]. Other operations find these folios and
    /// wait, so they share one read. Behind a closed gate this call creates nothing.
    ///
    /// # Errors
    /// No frame is free for the next folio; `created` has the folios made before. The caller
    /// reclaims frames and calls again.
    pub fn create_missing(
        &self,
        from: u64,
        end: u64,
        created: &mut Vec<FolioId>,
    ) -> Result<(), NoFrames> {
        let mut lock = self.lock.lock();
        let (mut at, end) = (from, end.min(self.gate.closed_from()));
        while at < end {
            let next = self.tree.next(&self.cache.nodes, &lock, at, end - 1, Tag::Used);
            match next {
                Some((index, number)) if index == at => {
                    let (id, folio) = self.folio(number);
                    let failed = folio.change_if(0, LOCKED | UPTODATE, LOCKED, ERROR).is_ok();
                    created.extend(failed.then_some(id));
                    at = end_of(folio);
                }
                _ => {
                    let end = next.map_or(end, |(index, _)| index);
                    at = self.create(&mut lock, at, end, created)?;
                }
            }
        }
        Ok(())
    }

    /// Creates one locked folio at page `at`, as large as alignment, `end`, the next folio and free
    /// frames allow. The caller fills and unlocks it. `None`: the page is not missing, or it is
    /// behind a closed gate.
    ///
    /// # Errors
    /// As for [`Mapping::create_missing`].
    pub fn create_one(&self, at: u64, end: u64) -> Result<Option<FolioId>, NoFrames> {
        let mut lock = self.lock.lock();
        let end = end.min(self.gate.closed_from());
        if end <= at {
            return Ok(None);
        }
        let next = self.tree.next(&self.cache.nodes, &lock, at, end - 1, Tag::Used);
        let end = next.map_or(end, |(index, _)| index);
        if end == at {
            return Ok(None);
        }
        let mut created = Vec::with_capacity(1);
        self.create(&mut lock, at, end, &mut created)?;
        Ok(created.pop())
    }

    /// Returns the page after the new folio.
    fn create(
        &self,
        lock: &mut TreeLock,
        at: u64,
        end: u64,
        created: &mut Vec<FolioId>,
    ) -> Result<u64, NoFrames> {
        let largest = ORDER_MAX.min(BITS);
        let order = at.trailing_zeros().min((end - at).ilog2()).min(largest);
        let id = self.cache.frames.allocate(order)?;
        let folio = self.cache.frames.folio(id);
        // Published first: a thread that finds the folio in the tree sees its identity.
        folio.publish(self.number, at, LOCKED);
        self.tree.insert(&self.cache.nodes, lock, at, folio.order(), id.get());
        self.cache.admit(id);
        created.push(id);
        Ok(end_of(folio))
    }

    /// Unlocks a folio after its fill. Adds to `woken` the entries that waited for the lock; the
    /// caller kicks them when it has unlocked all folios of the read.
    pub fn filled(&self, id: FolioId, result: Result<(), Errno>, woken: &mut Vec<WaitEntry>) {
        match result {
            Ok(()) => self.release(id, UPTODATE, LOCKED | ERROR, woken),
            Err(_) => self.release(id, ERROR, LOCKED, woken),
        }
    }

    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.gate.changes()
    }

    /// Until the gate opens, no operation creates a folio for pages from `from` on. Returns `false`
    /// if the gate is closed already.
    pub(crate) fn close(&self, from: u64) -> bool {
        let _lock = self.lock.lock();
        self.gate.close(if planted::makes(Planted::LeaveOpen) { u64::MAX - 1 } else { from })
    }

    /// Returns the entries that waited for the gate; the caller kicks them.
    pub(crate) fn open(&self) -> Vec<WaitEntry> {
        let lock = self.lock.lock();
        self.gate.open();
        drop(lock);
        self.gate.take_waiting()
    }

    /// If the gate is closed for page `index`, leaves an entry, which is kicked once when the gate
    /// opens. Otherwise leaves nothing and returns `false`.
    #[must_use]
    pub(crate) fn wait_open(&self, index: u64, make: impl FnOnce() -> WaitEntry) -> bool {
        self.gate.wait(index, make)
    }

    #[must_use]
    pub(crate) fn wait_any_open(&self, make: impl FnOnce() -> WaitEntry) -> bool {
        self.gate.wait(u64::MAX - 1, make)
    }

    /// Locks all folios with pages from `at` on, and adds them to `locked`. Moves `at` to the page
    /// after the last of them. The caller has closed the gate. The bytes of a folio that begins
    /// before byte `size` must not be lent, because the caller will zero the folio's end.
    ///
    /// # Errors
    /// A folio is locked, under writeback, or lent as above: the caller waits for it and calls
    /// again.
    pub(crate) fn lock_from(
        &self,
        at: &mut u64,
        size: u64,
        locked: &mut Vec<FolioId>,
    ) -> Result<(), Busy<'_>> {
        let lock = self.lock.lock();
        let next = |at| self.tree.next(&self.cache.nodes, &lock, at, u64::MAX, Tag::Used);
        while let Some((_, number)) = next(*at) {
            let (id, folio) = self.folio(number);
            let changes = folio.index() * (FRAME_BYTES as u64) < size;
            let guards = if changes { GUARDS } else { 0 };
            let written = if planted::makes(Planted::CutIntoWriteback) { 0 } else { WRITEBACK };
            if folio.change_if(0, LOCKED | written | guards, LOCKED, 0).is_err() {
                return Err(self.busy(number));
            }
            locked.push(id);
            *at = end_of(folio);
            if *at == 0 {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn pin_own(&self, id: FolioId) -> Pin<'_> {
        self.hold(id.get())
    }

    pub(crate) fn first_of(&self, run: &[FolioId]) -> u64 {
        self.cache.frames.folio(run[0]).index()
    }

    /// Leaves an entry, which is kicked once when `reason` comes true or a cut removes the folio.
    /// If `reason` is true already, leaves nothing and returns `false`: the caller looks again.
    #[must_use]
    pub fn wait(&self, pin: &Pin<'_>, reason: Reason, make: impl FnOnce() -> WaitEntry) -> bool {
        self.cache.waits.arm(pin, reason, make)
    }

    fn release(&self, id: FolioId, set: u64, clear: u64, woken: &mut Vec<WaitEntry>) {
        self.cache.waits.release(&self.cache.frames, id, set, clear, woken);
    }

    fn tag(&self, lock: &mut TreeLock, folio: &Folio, tag: Tag, on: bool) {
        let folio = (folio.index(), folio.order());
        self.tree.tag(&self.cache.nodes, lock, folio, tag, on);
    }

    /// Returns the folio with a number of the tree. The caller holds the mapping's lock, or has
    /// locked the folio.
    fn folio(&self, number: u32) -> (FolioId, &Folio) {
        self.cache.frames.candidate(number).expect("a folio of the tree")
    }

    /// Pins a folio that cannot leave the tree now.
    fn hold(&self, number: u32) -> Pin<'_> {
        let (id, folio) = self.folio(number);
        folio.try_hold().expect("fewer than 16 million pins");
        Pin::adopt(&self.cache.frames, id)
    }

    fn busy(&self, number: u32) -> Busy<'_> {
        let pin = self.hold(number);
        let reason = match pin.state() {
            state if state.is_locked() => Reason::Unlocked,
            state if state.is_writeback() => Reason::Written,
            _ => Reason::Returned,
        };
        Busy { pin, reason }
    }
}

impl Drop for Mapping {
    /// Drops dirty pages, too. No folio is locked or under writeback, because operations and I/Os
    /// in flight have references to the mapping.
    fn drop(&mut self) {
        let removed = self.truncate(0).is_ok();
        debug_assert!(removed, "a folio in use after its file");
        self.cache.unregister(self.number);
    }
}

#[cfg(all(test, loom))]
impl Mapping {
    /// The mistake that `written` avoids: counts the end of a writeback before it stores the
    /// outcome.
    pub(crate) fn written_early(&self, id: FolioId, result: Result<(), Errno>) {
        self.cache.frames.folio(id).note_written();
        self.written(id, crate::pages::Pages::ALL, result, &mut Vec::new());
    }
}

mod dirty;
mod removal;
#[cfg(test)]
mod tests;

/// Returns the page after a folio; 0 after the very last page.
fn end_of(folio: &Folio) -> u64 {
    folio.index().wrapping_add(folio.pages())
}
