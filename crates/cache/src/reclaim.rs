//! Frames for new pages: clean folios that nobody used lately go, dirty ones are written.

use crate::cache::Cache;
use crate::file::CachedFile;
use crate::folio::{DIRTY, ERROR, Folio, FolioId, LOCKED, WRITEBACK};
use crate::io::BIO_PAGES_MAX;
use crate::sync::{Arc, Relaxed};
use crate::tree::Tag;
use nowait_block::Bio;
use std::sync::Weak;

/// Frames to reclaim at a time: a whole block, so that large runs come back.
const BATCH_FRAMES: u64 = 64;

/// A hand that never meets a folio twice in one round stops after so many: a frequency is at most
/// 3, so the fourth finds it at zero.
const ROUNDS: u64 = 4;

impl Cache {
    /// Frees frames by second chance: a folio used lately loses one of its accesses, another one
    /// goes. True: at least one was freed.
    pub fn reclaim(&self) -> bool {
        let total = u64::from(self.frames.total());
        let mut freed = 0;
        for _ in 0..total * ROUNDS {
            let frame = self.hand.fetch_add(1, Relaxed) % total;
            let id = FolioId::of_frame(frame as u32);
            let folio = self.frames.folio(id);
            let state = folio.state();
            if state.is_frozen() || state.pins() > 0 || state.has(LOCKED | DIRTY | WRITEBACK) {
                continue;
            }
            let pages = folio.pages();
            if folio.cool() == 0 && self.evict(id) {
                freed += pages;
                if freed >= BATCH_FRAMES {
                    break;
                }
            }
        }
        freed > 0
    }

    /// Tells whether each folio is one whose writeback has failed, and none is tried again now:
    /// no frame will be free by itself. Looks at all of them, so for who found no frame.
    pub(crate) fn is_stuck(&self) -> bool {
        let folios = (0..self.frames.total()).map(|at| self.frames.folio(FolioId::of_frame(at)));
        let mut states = folios.map(Folio::state).filter(|state| !state.is_frozen());
        states.all(|state| state.is_dirty() && state.has(ERROR) && !state.has(LOCKED | WRITEBACK))
    }

    /// Puts the writeback of dirty folios of any files on `plug`, at most `pages_max` pages.
    pub fn clean(&self, pages_max: u64, plug: &mut Vec<Bio>) {
        self.clean_unless(0, pages_max, plug);
    }

    /// As [`Cache::clean`]; leaves out folios with a bit of `unless`.
    pub(crate) fn clean_unless(&self, unless: u64, pages_max: u64, plug: &mut Vec<Bio>) {
        let mut left = pages_max;
        for file in self.files() {
            let mapping = file.mapping().clone();
            let mut from = 0;
            while left > 0 {
                let mut run = Vec::new();
                let pages = left.min(BIO_PAGES_MAX);
                let what = (from, u64::MAX, Tag::Dirty);
                let next = mapping.start_writeback_unless(unless, what, pages, &mut run);
                let Some(next) = next else { break };
                left = left.saturating_sub(next - mapping.first_of(&run));
                file.write_back(run, plug);
                from = next;
            }
        }
    }

    /// Tells whether so much is dirty that writers have to wait.
    pub fn is_too_dirty(&self) -> bool {
        self.dirty_frames() > self.dirty_max()
    }

    /// Most frames that may be dirty or under writeback: half of the pool.
    pub fn dirty_max(&self) -> u64 {
        u64::from(self.frames.total()) / 2
    }

    /// From so many unwritten frames on, writers start writeback: a quarter of the pool.
    pub fn dirty_background(&self) -> u64 {
        u64::from(self.frames.total()) / 4
    }

    pub(crate) fn enlist(&self, file: &Arc<CachedFile>) {
        let mut files = self.files.lock();
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(file));
    }

    fn files(&self) -> Vec<Arc<CachedFile>> {
        self.files.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
