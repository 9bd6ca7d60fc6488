//! Removal of pages from their mapping: by truncation, invalidation or eviction.

use super::{Busy, Mapping, end_of};
use crate::folio::{DIRTY, FolioId, LOCKED, State, WRITEBACK};
use crate::pin::Pin;
use crate::tree::{Tag, TreeLock};
use nowait_retry::WaitEntry;

impl Mapping {
    /// Removes all folios that begin at page `from` or later, dirty ones too. Pinned folios stay in
    /// memory until the last pin is dropped, but later look-ups do not find them.
    ///
    /// # Errors
    /// A folio is locked or under writeback: the caller waits for it and calls again. Earlier
    /// folios are removed already.
    pub fn truncate(&self, from: u64) -> Result<(), Busy<'_>> {
        self.remove(from, u64::MAX, LOCKED | WRITEBACK).map(|_| ())
    }

    /// Removes the clean folios that have a page in `from..=last`. Returns the number of dirty
    /// folios, which stay.
    ///
    /// # Errors
    /// As for [`Mapping::truncate`].
    pub fn invalidate(&self, from: u64, last: u64) -> Result<usize, Busy<'_>> {
        let first = self.look_up(from).map_or(from, |pin| pin.folio().index());
        self.remove(first, last, LOCKED | WRITEBACK | DIRTY)
    }

    fn remove(&self, from: u64, last: u64, keep: u64) -> Result<usize, Busy<'_>> {
        let mut lock = self.lock.lock();
        let result = self.remove_locked(&mut lock, from, last, keep);
        drop(lock);
        self.notice_room();
        result
    }

    fn remove_locked(
        &self,
        lock: &mut TreeLock,
        from: u64,
        last: u64,
        keep: u64,
    ) -> Result<usize, Busy<'_>> {
        let (mut at, mut kept) = (from, 0);
        while let Some((_, number)) = self.tree.next(&self.cache.nodes, lock, at, last, Tag::Used) {
            let (id, folio) = self.folio(number);
            let end = end_of(folio);
            if folio.index() >= from {
                match folio.take(keep) {
                    Some(before) => {
                        self.take_out(lock, id, before);
                        if before.pins() == 0 {
                            self.cache.frames.free(id);
                        }
                    }
                    None if folio.state().has(LOCKED | WRITEBACK) => {
                        return Err(self.busy(number));
                    }
                    None => kept += 1,
                }
            }
            if end == 0 || end > last {
                break;
            }
            at = end;
        }
        Ok(kept)
    }

    /// Removes folios that the caller has locked, dirty folios too. Adds to `woken` the entries
    /// that waited for the folios.
    pub(crate) fn retire(&self, locked: &[FolioId], woken: &mut Vec<WaitEntry>) {
        let mut lock = self.lock.lock();
        for id in locked {
            let before = self.cache.waits.retire(&self.cache.frames, *id, woken);
            self.take_out(&mut lock, *id, before);
            if before.pins() == 0 {
                self.cache.frames.free(*id);
            }
        }
        drop(lock);
        self.notice_room();
    }

    pub(super) fn notice_room(&self) {
        self.cache.frames.notice_room();
        self.cache.progress.notice();
    }

    fn take_out(&self, lock: &mut TreeLock, id: FolioId, before: State) {
        let folio = self.cache.frames.folio(id);
        self.tree.remove(&self.cache.nodes, lock, folio.index(), folio.order());
        self.cache.policy.lock().remove(id.frame());
        if before.is_dirty() {
            self.cleaned(folio, before);
        }
    }

    /// Removes and frees the folio of `pin`. Returns `false` if another pin is on it, or it is
    /// locked, dirty or under writeback; a folio that is still in the tree then goes back to the
    /// policy.
    pub(crate) fn evict(&self, pin: Pin<'_>) -> bool {
        let (id, folio) = (pin.id(), pin.folio());
        let mut lock = self.lock.lock();
        if folio.mapping() != self.number || !folio.freeze(1, LOCKED | WRITEBACK | DIRTY) {
            // The folio stays in the tree, and the policy may have forgotten it.
            if !folio.state().is_detached() {
                self.cache.admit(id);
            }
            return false;
        }
        pin.forget();
        // The folio was not dirty, so the counts of dirty frames do not change.
        self.take_out(&mut lock, id, State(0));
        drop(lock);
        self.cache.frames.free(id);
        self.cache.frames.notice_room();
        true
    }
}
