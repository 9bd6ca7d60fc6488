//! One open of a cached file, with its readahead state.
//!
//! A read comes here only when a page is missing, or when it finds a mark. The read does not wait
//! for the pages that it reads ahead. It does not read ahead pages for which the cache has no
//! frames.

use crate::FRAME_BYTES;
use crate::file::CachedFile;
use crate::folio::MARKER;
use crate::memory::create_now;
use crate::pin::Pin;
use crate::primitives::{Arc, Mutex};
use crate::readahead::{Advice, Bounds, Plan, Readahead, Request};
use core::ops::Range;
use nowait_block::Bio;

/// A window takes at most a quarter of the frames that are not dirty, or four if that is more.
const WINDOW_SHARE: u64 = 4;

/// The state of one open of a cached file, shared by its reads.
///
/// A read that holds the lock takes no other lock and does no I/O.
#[derive(Debug)]
pub struct OpenFile {
    readahead: Mutex<Readahead>,
}

impl OpenFile {
    /// Makes the state of a file just opened. Windows have at most `pages_max` pages (4 if it is
    /// less), and twice as many after [`Advice::Sequential`].
    pub fn new(pages_max: u32) -> OpenFile {
        OpenFile { readahead: Mutex::new(Readahead::new(pages_max)) }
    }

    /// Sets the advice for later reads, as posix_fadvise(2).
    pub fn advise(&self, advice: Advice) {
        self.readahead.lock().advise(advice);
    }

    /// Starts reading the missing pages of a byte range (WILLNEED), and puts the bios on `plug`.
    /// Stops at a quarter of the frames that are not dirty, and reads nothing while too many frames
    /// are being read.
    pub fn will_need(&self, file: &Arc<CachedFile>, range: Range<u64>, plug: &mut Vec<Bio>) {
        let bounds = bounds(file);
        let mut pages = range.start / PAGE..range.end.div_ceil(PAGE);
        pages.end = pages.end.min(pages.start.saturating_add(bounds.room_pages));
        while pages.start < pages.end {
            let plan = self.readahead.lock().will_need(pages.clone(), bounds);
            if plan.read.is_empty() {
                return;
            }
            pages.start = plan.read.end;
            read_ahead(file, &plan, plug);
        }
    }

    /// Drops the clean folios that have whole pages in the byte range, except folios that are
    /// locked or under writeback (DONTNEED). If these pages reach the end of a stream's window, a
    /// later miss of them does not shorten the window.
    pub fn forget(&self, file: &CachedFile, range: Range<u64>) {
        let pages = range.start.div_ceil(PAGE)..range.end / PAGE;
        if pages.is_empty() {
            return;
        }
        self.readahead.lock().forget(pages.clone());
        let mut from = pages.start;
        while from < pages.end {
            let Err(busy) = file.mapping().invalidate(from, pages.end - 1) else { return };
            let folio = busy.pin.folio();
            from = folio.index() + folio.pages();
        }
    }

    pub(crate) fn miss(&self, file: &CachedFile, request: &mut Request, index: u64) -> Plan {
        self.readahead.lock().miss(request, index, bounds(file))
    }

    /// Clears the folio's mark. Returns the pages to read ahead, if the folio had a mark.
    pub(crate) fn take_mark(
        &self,
        file: &CachedFile,
        request: &mut Request,
        pin: &Pin<'_>,
        index: u64,
    ) -> Plan {
        if !pin.folio().clear(MARKER).is_marker() {
            return Plan::NONE;
        }
        let (folio, bounds) = (pin.folio(), bounds(file));
        let mut readahead = self.readahead.lock();
        let mark = readahead.mark_in(folio.index()..folio.index() + folio.pages());
        readahead.marker(request, mark.unwrap_or(index), bounds)
    }
}

const PAGE: u64 = FRAME_BYTES as u64;

/// Reads nothing while too many frames are being read. Marks the folio of the plan's marker page.
pub(crate) fn read_ahead(file: &Arc<CachedFile>, plan: &Plan, plug: &mut Vec<Bio>) {
    let mut created = Vec::new();
    if !plan.read.is_empty() && !file.mapping().must_wait_to_read() {
        (created, _) = create_now(file, plan.read.start, plan.read.end, plug);
    }
    mark(file, plan);
    file.fill(&created, plug);
}

fn mark(file: &CachedFile, plan: &Plan) {
    if let Some(pin) = plan.marker.and_then(|marker| file.mapping().look_up(marker)) {
        pin.folio().set(MARKER);
    }
}

fn bounds(file: &CachedFile) -> Bounds {
    let cache = file.cache();
    let clean = u64::from(cache.frames().total()).saturating_sub(cache.dirty_frames());
    Bounds { file_pages: file.size().div_ceil(PAGE), room_pages: clean / WINDOW_SHARE }
}
