//! A cache of what segments have, in memory or in a folder of this machine, for all images of a
//! program.
//!
//! ```text
//!   a GET of data ──▶ its pages here? ──▶ answered
//!                     └ no ─▶ one GET of all its pages, one for all who ask ─▶ here
//!   a segment is put ──▶ its pages here
//! ```
//! A segment never changes, and its name is that of its image with a number that is not used
//! twice, so nothing here is ever stale, and clones share what they have in common. A page whose
//! checksum is wrong is as good as none. What the machine finds damaged is asked of the store anew.

mod folder;
mod pages;
mod writer;

use bytes::Bytes;
use folder::Folder;
use futures_util::StreamExt;
use nowait::{CacheMode, Nowait};
use nowait_log::ImageId;
use nowait_sys::mutex::Mutex;
use pages::{Page, PageKey, Pages};
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Notify;
use writer::{Write, Writer};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 16 << 10;

/// Pages that are read from a folder at the same time for one request.
const READS_AT_ONCE: usize = 8;

/// Pages on their way into a folder; more are not stored.
const WRITES_MAX: usize = 2048;

/// A segment of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The image that has put it.
    pub image: ImageId,
    /// Its place in the log.
    pub sequence: u64,
}

impl Segment {
    fn page(self, number: u64) -> PageKey {
        PageKey { image: self.image, sequence: self.sequence, number: number as u32 }
    }
}

/// A cache. Several images may share it, each with a thread of its own.
#[derive(Debug)]
pub struct Cache {
    state: Arc<Mutex<State>>,
    /// `None`: the pages are in memory.
    folder: Option<(Arc<Folder>, Writer)>,
    /// Wakes those who wait for a GET of another.
    fetched: Notify,
}

#[derive(Debug)]
struct State {
    pages: Pages,
    /// The bytes of the slots, if they are in memory.
    memory: Vec<Bytes>,
    /// Pages on their way into the folder.
    writes: HashMap<PageKey, Bytes>,
    /// First pages of what the store is being asked for.
    fetches: HashSet<PageKey>,
}

impl Cache {
    /// Makes one of so many bytes of memory, which are used as they are needed.
    pub fn in_memory(bytes: u64) -> Arc<Cache> {
        let slots = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        Arc::new(Cache::new(Pages::new(slots.max(1))))
    }

    /// Opens the one of a folder, or makes it, of so many bytes on the disk, which are used as they
    /// are needed. What it has from before stays, if it had the same size. `mode` is the page cache
    /// between it and the disk; a page that cannot be stored is told to `say`. Blocks.
    ///
    /// # Errors
    /// Another process uses it; it cannot be opened: in one line.
    pub fn in_folder(
        nowait: &Nowait,
        folder: &Path,
        bytes: u64,
        mode: CacheMode,
        say: Option<fn(&str)>,
    ) -> io::Result<Arc<Cache>> {
        let (folder, pages) = Folder::open(nowait, folder, bytes, mode)?;
        let mut cache = Cache::new(pages);
        let folder = Arc::new(folder);
        let writer = Writer::start(folder.clone(), cache.state.clone(), say)?;
        cache.folder = Some((folder, writer));
        Ok(Arc::new(cache))
    }

    fn new(pages: Pages) -> Cache {
        let (writes, fetches) = (HashMap::new(), HashSet::new());
        let state = State { pages, memory: Vec::new(), writes, fetches };
        Cache { state: Arc::new(Mutex::new(state)), folder: None, fetched: Notify::new() }
    }

    /// Has the disk get what is on its way, and takes nothing in any more, as when it is dropped.
    /// Blocks, for some seconds at most.
    pub fn end(&self) {
        self.folder.iter().for_each(|(_, writer)| writer.end());
    }

    /// Returns bytes of a segment, if all of them are in memory.
    pub(crate) fn read_now(&self, segment: Segment, range: &Range<u64>) -> Option<Vec<u8>> {
        if self.folder.is_some() {
            return None;
        }
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut state = self.state.lock();
        let State { pages, memory, .. } = &mut *state;
        for (number, within) in parts(range) {
            let (slot, _) = pages.find(&segment.page(number))?;
            bytes.extend_from_slice(memory[slot as usize].get(within)?);
        }
        Some(bytes)
    }

    /// Returns bytes of a segment, if all of them are here.
    pub(crate) async fn read(&self, segment: Segment, range: &Range<u64>) -> Option<Vec<u8>> {
        if self.folder.is_none() {
            return self.read_now(segment, range);
        }
        // Most often all are here, or none is.
        if !self.has(&segment.page(range.start / PAGE_BYTES)) {
            return None;
        }
        let pages = parts(range).map(|(number, within)| async move {
            let page = self.page(segment.page(number)).await?;
            (within.end <= page.len()).then(|| page.slice(within))
        });
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut pages = futures_util::stream::iter(pages).buffered(READS_AT_ONCE);
        while let Some(page) = pages.next().await {
            bytes.extend_from_slice(&page?);
        }
        Some(bytes)
    }

    fn has(&self, key: &PageKey) -> bool {
        let state = self.state.lock();
        state.pages.contains(key) || state.writes.contains_key(key)
    }

    async fn page(&self, key: PageKey) -> Option<Bytes> {
        let (slot, page) = {
            let mut state = self.state.lock();
            if let Some(bytes) = state.writes.get(&key) {
                return Some(bytes.clone());
            }
            state.pages.find(&key)?
        };
        let bytes = self.folder.as_ref()?.0.read(slot, page).await;
        if bytes.is_none() {
            let mut state = self.state.lock();
            // Another page may be there by now.
            if state.pages.page(slot) == Some(page) {
                state.pages.remove(&key);
            }
        }
        bytes
    }

    /// Returns the segments of which it has something.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> HashSet<Segment> {
        let state = self.state.lock();
        let pages = (0..state.pages.len()).filter_map(|slot| state.pages.page(slot));
        pages.map(|Page { key, .. }| Segment { image: key.image, sequence: key.sequence }).collect()
    }

    /// Waits until no other one asks the store for a page, and lets others wait meanwhile.
    pub(crate) async fn turn(&self, segment: Segment, range: &Range<u64>) -> Turn<'_> {
        let key = segment.page(range.start / PAGE_BYTES);
        loop {
            let mut fetched = std::pin::pin!(self.fetched.notified());
            // From here on no end of another is missed.
            fetched.as_mut().enable();
            if self.state.lock().fetches.insert(key) {
                return Turn { cache: self, key };
            }
            fetched.await;
        }
    }

    /// Takes bytes of a segment of `segment_bytes` in, from the beginning of a page on; `anew`:
    /// also those that are here.
    pub(crate) fn insert(
        &self,
        segment: Segment,
        start: u64,
        bytes: &[u8],
        (segment_bytes, anew): (u64, bool),
    ) {
        for (at, bytes) in
            (start..).step_by(PAGE_BYTES as usize).zip(bytes.chunks(PAGE_BYTES as usize))
        {
            let is_whole =
                bytes.len() as u64 == PAGE_BYTES || at + bytes.len() as u64 == segment_bytes;
            let key = segment.page(at / PAGE_BYTES);
            if is_whole && (anew || !self.has(&key)) {
                self.store(key, bytes);
            }
        }
    }

    fn store(&self, key: PageKey, bytes: &[u8]) {
        let mut state = self.state.lock();
        let page = Page { key, len: bytes.len() as u32, sum: sum(&key, bytes) };
        let (bytes, is_busy) = (Bytes::copy_from_slice(bytes), state.writes.len() >= WRITES_MAX);
        // A page that is on its way has the bytes of the same segment.
        if self.folder.is_some() && (is_busy || state.writes.contains_key(&key)) {
            return;
        }
        let Some(slot) = state.pages.take() else { return };
        if let Some((_, writer)) = &self.folder {
            state.writes.insert(key, bytes.clone());
            return writer.put(Write { slot, page, bytes });
        }
        let place = slot as usize;
        if state.memory.len() == place {
            state.memory.push(bytes);
        } else {
            state.memory[place] = bytes;
        }
        state.pages.put(slot, page);
    }
}

/// The right to ask the store for a page.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    cache: &'a Cache,
    key: PageKey,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().fetches.remove(&self.key);
        self.cache.fetched.notify_waiters();
    }
}

/// Returns the pages of a range, and which of their bytes are in it.
fn parts(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let (first, end) = (range.start, range.end);
    (first / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |number| {
        let start = number * PAGE_BYTES;
        let within = first.saturating_sub(start)..(end - start).min(PAGE_BYTES);
        (number, within.start as usize..within.end as usize)
    })
}

/// Returns the pages that a range is part of.
pub(crate) fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES * PAGE_BYTES..range.end.next_multiple_of(PAGE_BYTES)
}

fn sum(key: &PageKey, bytes: &[u8]) -> u32 {
    let name = crc32c::crc32c(&key.image);
    let name = crc32c::crc32c_append(name, &key.sequence.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(name, &key.number.to_le_bytes()), bytes)
}
