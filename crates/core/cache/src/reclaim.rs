//! Reclaim: evicts the folios that the policy chooses, and starts the writeback of dirty folios.

use crate::cache::Cache;
use crate::file::CachedFile;
use crate::folio::{DIRTY, ERROR, Folio, FolioId, LOCKED, WRITEBACK};
use crate::io::BIO_PAGES_MAX;
use crate::policy::{self, s3_fifo::Take};
use crate::primitives::Arc;
use crate::tree::Tag;
use nowait_block::Bio;
use std::sync::Weak;

/// The fewest frames that one call tries to free: a block, so that large runs come back.
const BATCH_FRAMES: u64 = 64;

const MET_MAX: usize = 64;

/// A search starts writeback if it remembers more than one dirty folio for every four evicted.
const DIRTY_SHARE: usize = 4;

#[derive(Debug, Default)]
struct Search {
    looks: u64,
    /// Looks that found a folio locked, dirty or under writeback. An operation can wait for the end
    /// of these states.
    busy: u64,
    evicted: usize,
    /// Mapping and first page of folios that were dirty, but neither locked nor failed.
    dirty: Vec<(u32, u64)>,
}

impl Search {
    fn look(&mut self, folio: &Folio, take: Take) -> Option<u8> {
        self.looks += 1;
        let state = folio.state();
        if state.has(LOCKED | DIRTY | WRITEBACK) {
            self.busy += 1;
            if !state.has(LOCKED | WRITEBACK | ERROR) && self.dirty.len() < MET_MAX {
                self.dirty.push((folio.mapping(), folio.index()));
            }
            return None;
        }
        if state.is_frozen() || state.pins() > 0 {
            return None;
        }
        let hits = match take {
            Take::All => folio.cool_down(),
            Take::One => folio.cool(),
        };
        Some(hits as u8)
    }
}

impl Cache {
    /// Tries to free `frames` frames, and at least a block. Returns `true` if it freed any. If the
    /// search met many dirty folios, puts their writeback on `plug`, so that a later search finds
    /// them clean.
    pub fn reclaim(&self, frames: u64, plug: &mut Vec<Bio>) -> bool {
        let (mut search, mut freed) = (Search::default(), 0);
        let looks_max = 2 * u64::from(self.frames.total());
        while freed < frames.max(BATCH_FRAMES) && search.looks < looks_max {
            let before = search.looks;
            let look = |frame, take| search.look(self.frames.folio(FolioId::of_frame(frame)), take);
            let victim = self.policy.lock().evict(look);
            let Some(frame) = victim else {
                // If the search has met only pinned folios, it goes on, because pins may last. If
                // the search has met busy folios, it ends: the operation can wait for these folios.
                if search.busy > 0 || freed > 0 || search.looks == before {
                    break;
                }
                continue;
            };
            let id = FolioId::of_frame(frame);
            let pages = self.frames.folio(id).pages();
            if self.evict(id) {
                freed += pages;
                search.evicted += 1;
            }
        }
        if search.dirty.len() * DIRTY_SHARE > search.evicted {
            self.clean_these(search.dirty, plug);
        }
        freed > 0
    }

    /// Returns `true` if the writeback of every folio in the pool has failed, and none is locked or
    /// under writeback: no frame will become free by itself. Slow: reads all headers.
    pub(crate) fn is_stuck(&self) -> bool {
        let folios = (0..self.frames.total()).map(|at| self.frames.folio(FolioId::of_frame(at)));
        let mut states = folios.map(Folio::state).filter(|state| !state.is_frozen());
        states.all(|state| state.is_dirty() && state.has(ERROR) && !state.has(LOCKED | WRITEBACK))
    }

    /// The caller holds the lock of the folio's mapping.
    pub(crate) fn admit(&self, id: FolioId) {
        let folio = self.frames.folio(id);
        let hash = policy::hash(u64::from(folio.mapping()), folio.index());
        let mut policy = self.policy.lock();
        if !policy.contains(id.frame()) {
            policy.insert(id.frame(), hash, folio.pages() as u16);
        }
    }

    /// Starts the writeback of these folios, given by mapping and first page, and of dirty folios
    /// close behind them. Leaves out folios that are clean by now, and folios whose writeback has
    /// failed.
    fn clean_these(&self, mut folios: Vec<(u32, u64)>, plug: &mut Vec<Bio>) {
        if folios.is_empty() {
            return;
        }
        folios.sort_unstable();
        for file in self.files() {
            let mapping = file.mapping();
            let (mut from, number) = (0, mapping.number());
            for (_, index) in folios.iter().filter(|folio| folio.0 == number) {
                if *index < from {
                    continue;
                }
                let (mut run, last) = (Vec::new(), index + BIO_PAGES_MAX - 1);
                let pages = BIO_PAGES_MAX;
                let what = (*index, last, Tag::Dirty);
                let next = mapping.start_writeback_unless(ERROR, what, pages, &mut run);
                let Some(next) = next else { continue };
                file.write_back(&run, plug);
                from = next;
            }
        }
    }

    /// Starts the writeback of dirty folios of any files, and puts the bios on `plug`. Stops at the
    /// folio that reaches `pages_max` pages.
    pub fn clean(&self, pages_max: u64, plug: &mut Vec<Bio>) {
        self.clean_unless(0, pages_max, plug);
    }

    /// Like [`Cache::clean`], without the folios that have a bit of `unless`.
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
                file.write_back(&run, plug);
                from = next;
            }
        }
    }

    /// Returns the number of unwritten frames ([`Cache::unwritten_frames`]) above which writers
    /// start writeback: a quarter of the pool.
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
