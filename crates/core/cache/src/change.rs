//! A change of a file that bypasses its cache: a truncation, or a write by others.
//!
//! The steps of a change:
//!
//! 1. The change closes the gate, so that no operation reads a page of the changed part into the
//!    cache.
//! 2. A cut locks all folios from the new end on. Another change writes all dirty pages and removes
//!    all folios.
//! 3. The caller changes the file.
//! 4. `finish` removes the folios that a cut has locked, but keeps a folio with bytes before the
//!    new end. It opens the gate.
//!
//! Meanwhile no request changes a page of the changed part, so no write is lost. The pages beyond a
//! cut, dirty ones too, stay in the cache and locked until the file itself is shorter. Otherwise a
//! sync could succeed without having written the dirty ones, and a crash before the cut would lose
//! them. If the caller cannot cut the file, these pages stay as they were.
//!
//! A write that has copied only a part when a change begins copies all of its bytes again. If the
//! change closes the gate for a page of the write, the write first waits until the gate opens.

use crate::FRAME_BYTES;
use crate::copy;
use crate::file::CachedFile;
use crate::flush::SyncLevel;
use crate::folio::FolioId;
use crate::mapping::Mapping;
use crate::page_wait::Reason;
use crate::pages::Pages;
use crate::primitives::Arc;
use crate::writeback::SyncOperation;
use nowait_block::Bio;
use nowait_retry::{Step, WaitEntry};

/// A change in progress. If it is dropped before [`Change::finish`], it unlocks its folios and
/// opens the gate, and the size stays.
#[derive(Debug)]
pub struct Change {
    file: Arc<CachedFile>,
    kind: Kind,
    closed: bool,
    /// Folios that a cut has locked, and the page from which the cut goes on to lock.
    locked: Vec<FolioId>,
    at: u64,
    sync: Option<SyncOperation>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Cut(u64),
    Outside,
}

impl Change {
    /// Makes the change that sets the size to `size` bytes.
    pub fn cut(file: &Arc<CachedFile>, size: u64) -> Change {
        Change::new(file, Kind::Cut(size), size / FRAME_BYTES as u64)
    }

    /// Makes a change of any kind, anywhere in the file, which the caller makes past the cache.
    pub fn outside(file: &Arc<CachedFile>) -> Change {
        Change::new(file, Kind::Outside, 0)
    }

    fn new(file: &Arc<CachedFile>, kind: Kind, at: u64) -> Change {
        Change { file: file.clone(), kind, closed: false, locked: Vec::new(), at, sync: None }
    }

    /// Runs an iteration, as [`crate::read::ReadOperation::iterate`]. After `Done(Ok(0))` the
    /// caller may change the file.
    ///
    /// [`Change::outside`] ends with an error if a page could not be written; a cut does not fail.
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        let file = self.file.clone();
        let mapping = file.mapping();
        if let Kind::Cut(size) = self.kind {
            return self.lock_all(mapping, size, wait);
        }
        match self.close(mapping, wait) {
            true => self.take_out_all(mapping, plug, wait),
            false => Step::Retry,
        }
    }

    /// Returns `false`, and leaves a wait entry, while another change has closed the gate.
    fn close(&mut self, mapping: &Mapping, wait: &dyn Fn() -> WaitEntry) -> bool {
        while !self.closed {
            self.closed = mapping.close(self.at);
            if !self.closed && mapping.wait_any_open(wait) {
                return false;
            }
        }
        true
    }

    fn lock_all(&mut self, mapping: &Mapping, size: u64, wait: &dyn Fn() -> WaitEntry) -> Step {
        while self.close(mapping, wait) {
            let busy = match mapping.lock_from(&mut self.at, size, &mut self.locked) {
                Ok(()) => return Step::Done(Ok(0)),
                Err(busy) => busy,
            };
            // A loan may last, and its holder may read the file meanwhile. So the change unlocks
            // its folios and opens the gate until the loan ends.
            if busy.reason == Reason::Returned {
                self.release();
                self.at = size / FRAME_BYTES as u64;
            }
            let waits = mapping.wait(&busy.pin, busy.reason, wait);
            drop(busy);
            if waits {
                return Step::Retry;
            }
        }
        Step::Retry
    }

    fn take_out_all(
        &mut self,
        mapping: &Mapping,
        plug: &mut Vec<Bio>,
        wait: &dyn Fn() -> WaitEntry,
    ) -> Step {
        loop {
            if let Some(sync) = &mut self.sync {
                match sync.iterate(plug, wait) {
                    Step::Done(Ok(_)) => self.sync = None,
                    step => return step,
                }
            }
            let busy = match mapping.invalidate(0, u64::MAX) {
                Ok(0) => return Step::Done(Ok(0)),
                Ok(_) => {
                    let file = self.file.clone();
                    self.sync = Some(SyncOperation::whole(file, SyncLevel::WriteOnly));
                    continue;
                }
                Err(busy) => busy,
            };
            if mapping.wait(&busy.pin, busy.reason, wait) {
                return Step::Retry;
            }
        }
    }

    /// Ends the change. The caller has changed the file, which has `size` bytes now.
    pub fn finish(mut self, size: u64) {
        self.file.set_size(size);
        let mut woken = Vec::new();
        let locked = core::mem::take(&mut self.locked);
        let first = locked.first().filter(|id| self.begins_before(**id, size)).copied();
        let behind = if first.is_some() { &locked[1..] } else { &locked };
        self.file.mapping().retire(behind, &mut woken);
        if let Some(id) = first {
            let pin = self.file.mapping().pin_own(id);
            let (memory, len) = pin.at(size);
            // SAFETY: the memory from byte `size` on belongs to the folio, which this change has
            // locked.
            unsafe { copy::zero(memory, len) };
            let kept =
                Pages::of_bytes(0, (size - pin.folio().index() * FRAME_BYTES as u64) as usize);
            drop(pin);
            self.file.mapping().forget_dirty(id, Pages::ALL.without(kept));
            self.file.mapping().unlock(id, &mut woken);
        }
        woken.into_iter().for_each(WaitEntry::wake);
        // `drop` opens the gate.
    }

    /// Returns `true` if the folio begins before byte `size`: `finish` keeps this folio, and zeroes
    /// its bytes from `size` on.
    fn begins_before(&self, id: FolioId, size: u64) -> bool {
        let folio = self.file.cache().frames().folio(id);
        folio.index() * (FRAME_BYTES as u64) < size
    }

    fn release(&mut self) {
        let mut woken = Vec::new();
        for id in self.locked.drain(..) {
            self.file.mapping().unlock(id, &mut woken);
        }
        if core::mem::take(&mut self.closed) {
            woken.append(&mut self.file.mapping().open());
        }
        woken.into_iter().for_each(WaitEntry::wake);
        // Reclaim can evict the unlocked folios that are clean.
        self.file.cache().frames().notice_room();
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.release();
    }
}
