//! Dirty pages, from the change of a folio to the end of its writeback.
//!
//! A folio knows which of its pages are newer than the file, and the cache writes only these:
//! another process may have changed pages that this cache has merely read. DIRTY is set while a
//! folio has such pages and no writeback of it is in progress. A page is clean again when a
//! writeback has written it, the cache has dropped it, or a cut has removed it. Pages that are
//! dirty at the end of a writeback have failed.

use super::{Mapping, end_of};
use crate::folio::{DIRTY, ERROR, Folio, FolioId, LOCKED, State, UPTODATE, WRITEBACK};
use crate::mistake::{Mistake, makes};
use crate::pages::Pages;
use crate::pin::Pin;
use crate::share::Shares;
use crate::tree::Tag;
use nowait_retry::WaitEntry;
use nowait_sys::Errno;

impl Mapping {
    /// Unlocks a folio whose `pages` the caller has changed, or filled without reading. Makes these
    /// pages dirty and the folio uptodate.
    pub fn changed(&self, id: FolioId, pages: Pages, woken: &mut Vec<WaitEntry>) {
        let folio = self.cache.frames.folio(id);
        if makes(Mistake::WriteIntoWriteback) && folio.state().is_writeback() {
            return self.release(id, UPTODATE, LOCKED, woken);
        }
        // The caller has locked the folio, so no writeback begins between these steps.
        folio.add_dirty(if makes(Mistake::DirtyAround) { folio.all_pages() } else { pages });
        if !folio.state().is_dirty() && !makes(Mistake::ForgetDirty) {
            let mut lock = self.lock.lock();
            folio.clear(ERROR);
            folio.set(DIRTY);
            self.tag(&mut lock, folio, Tag::Dirty, true);
            self.counts().dirtied(folio.pages());
        }
        self.release(id, UPTODATE, LOCKED, woken);
    }

    /// Makes `pages` clean in a folio that the caller has locked: a cut has removed them from the
    /// file.
    pub(crate) fn forget_dirty(&self, id: FolioId, pages: Pages) {
        let folio = self.cache.frames.folio(id);
        let mut lock = self.lock.lock();
        if !folio.state().is_dirty() || !folio.clean(pages).is_empty() {
            return;
        }
        self.cleaned(folio, folio.clear(DIRTY | ERROR));
        for tag in [Tag::Dirty, Tag::Towrite] {
            self.tag(&mut lock, folio, tag, false);
        }
        drop(lock);
        self.notice_room();
    }

    pub(super) fn cleaned(&self, folio: &Folio, before: State) {
        if before.is_error() {
            self.counts().recovered(folio.pages());
        }
        self.counts().cleaned(folio.pages());
    }

    /// Sets [`Tag::Towrite`] on the pages in `from..=last` that are dirty now. A sync writes folios
    /// with this tag, and so not folios that become dirty later.
    pub fn tag_for_writeback(&self, from: u64, last: u64) {
        let mut lock = self.lock.lock();
        let short = makes(Mistake::SyncShort) && last < u64::MAX;
        let last = if short { last.saturating_sub(1) } else { last };
        self.tree.mark_dirty_to_write(&self.cache.nodes, &mut lock, from, last);
    }

    /// Starts the writeback of the next run of adjoining dirty folios that have `tag`, in the pages
    /// `from..=last`. The run ends with the folio that reaches `pages_max` pages. Folios that are
    /// locked or under writeback do not join, and keep their tag.
    ///
    /// Adds the folios to `run`, ascending. The caller writes their dirty pages, and ends each run
    /// of dirty pages by [`Mapping::written`]. Returns the page at which to continue. `None`: this
    /// call started nothing.
    pub fn start_writeback(
        &self,
        from: u64,
        last: u64,
        tag: Tag,
        pages_max: u64,
        run: &mut Vec<FolioId>,
    ) -> Option<u64> {
        self.start_writeback_unless(0, (from, last, tag), pages_max, run)
    }

    /// Like [`Mapping::start_writeback`], but folios with a bit of `unless` do not join either.
    pub(crate) fn start_writeback_unless(
        &self,
        unless: u64,
        (from, last, tag): (u64, u64, Tag),
        pages_max: u64,
        run: &mut Vec<FolioId>,
    ) -> Option<u64> {
        let busy = LOCKED | WRITEBACK | unless;
        let mut lock = self.lock.lock();
        let (mut at, mut pages) = (from, 0);
        while pages < pages_max {
            let next = self.tree.next(&self.cache.nodes, &lock, at, last, tag);
            let Some((index, number)) = next else { break };
            let (id, folio) = self.folio(number);
            let adjoins = pages == 0 || folio.index() == at;
            if !adjoins {
                break;
            }
            if folio.change_if(DIRTY, busy, WRITEBACK, DIRTY).is_err() {
                if pages > 0 {
                    break;
                }
                at = end_of(folio).max(index);
                if at == 0 {
                    break;
                }
                continue;
            }
            for (tag, on) in [(Tag::Dirty, false), (Tag::Towrite, false), (Tag::Writeback, true)] {
                self.tag(&mut lock, folio, tag, on);
            }
            run.push(id);
            folio.begin_runs();
            pages += folio.pages();
            self.counts().begun(folio.pages());
            at = end_of(folio);
        }
        (pages > 0).then_some(at)
    }

    /// The caller has started the writeback of the folios of `run`.
    pub(crate) fn dirty_pages(&self, run: &[FolioId], from: u64, last: u64) -> u64 {
        let of_folio = |id: &FolioId| {
            let folio = self.cache.frames.folio(*id);
            let skipped = from.saturating_sub(folio.index()).min(u64::from(u64::BITS));
            let end = last.saturating_sub(folio.index()).saturating_add(1);
            let count = end.min(folio.pages()).saturating_sub(skipped);
            folio.dirty_pages().and(Pages::range(skipped as u32, count as u32)).count()
        };
        run.iter().map(|id| u64::from(of_folio(id))).sum()
    }

    /// Ends the writeback of `pages` of a folio. After the last run of pages, ends the writeback of
    /// the folio. If `result` is an error, the pages stay dirty, and the folio gets ERROR.
    /// Exception: if the folio had not failed before and the cache has too many failed frames, the
    /// cache drops the pages and returns `false`. The caller kicks the entries in `woken` when all
    /// folios of the I/O have ended.
    pub fn written(
        &self,
        id: FolioId,
        pages: Pages,
        result: Result<(), Errno>,
        woken: &mut Vec<WaitEntry>,
    ) -> bool {
        let folio = self.cache.frames.folio(id);
        let mut lock = self.lock.lock();
        let is_kept = result.is_ok()
            || folio.state().is_error()
            || !Shares::of(self.cache.frames.total(), self.counts()).drops();
        match result {
            // Stored under the lock under which ERROR is set: a sync that sees ERROR finds the
            // error number.
            Err(errno) if is_kept => folio.note_error(errno),
            _ => _ = folio.clean(pages),
        }
        if !folio.end_run() {
            return is_kept;
        }
        self.counts().ended(folio.pages());
        if folio.dirty_pages().is_empty() {
            self.cleaned(folio, folio.clear(ERROR));
        } else {
            if !folio.set(DIRTY | ERROR).is_error() {
                self.counts().failed(folio.pages());
            }
            self.tag(&mut lock, folio, Tag::Dirty, true);
        }
        self.tag(&mut lock, folio, Tag::Writeback, false);
        drop(lock);
        folio.note_written();
        let before = woken.len();
        self.release(id, 0, WRITEBACK, woken);
        if makes(Mistake::LoseKicks) {
            woken.truncate(before);
        }
        is_kept
    }

    pub(crate) fn has_dirt(&self) -> bool {
        // One lock for both checks, because a failed writeback moves a folio from one tag to the
        // other.
        let lock = self.lock.lock();
        let tagged = |tag| self.tree.next(&self.cache.nodes, &lock, 0, u64::MAX, tag).is_some();
        tagged(Tag::Dirty) || tagged(Tag::Writeback)
    }

    /// Returns the first page in `from..=last` that has the tag, and its folio.
    pub fn next_tagged(&self, from: u64, last: u64, tag: Tag) -> Option<(u64, Pin<'_>)> {
        let lock = self.lock.lock();
        let (index, number) = self.tree.next(&self.cache.nodes, &lock, from, last, tag)?;
        let id = self.hold(number);
        Some((index, id))
    }

    /// Returns the error of a failed writeback that has left a folio in `from..=last` dirty.
    pub fn write_error(&self, from: u64, last: u64) -> Option<Errno> {
        if self.dirt.failed() == 0 {
            return None;
        }
        let lock = self.lock.lock();
        for tag in [Tag::Dirty, Tag::Writeback] {
            let mut at = from;
            while let Some((_, number)) = self.tree.next(&self.cache.nodes, &lock, at, last, tag) {
                let (_, folio) = self.folio(number);
                if folio.state().is_error() {
                    return Some(folio.errno());
                }
                at = end_of(folio);
                if at == 0 {
                    break;
                }
            }
        }
        None
    }
}
