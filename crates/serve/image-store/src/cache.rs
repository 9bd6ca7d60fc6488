//! A cache of the data in segments, in memory or in a folder of this machine. All images of a
//! program may share it.
//!
//! ```text
//!   a GET of data ──▶ its pages cached? ──▶ answered
//!                     └ no ─▶ one GET of all its pages, for all that want one ─▶ cached
//!   a segment is put ──▶ its pages are cached
//! ```
//! A segment never changes. The key of a segment in the cache (the image, the image's place in a
//! store, and a number that the log does not use twice) belongs to no other segment. So no page is
//! stale, and clones share the cached segments of their bases. Two segments can have the same key
//! only after a user has put the objects of an image back to an older state. Therefore a writer
//! removes the pages behind the end of its log from the cache, and the segments that it puts
//! replace cached pages. In a folder, a page with a wrong checksum counts as missing. If the state
//! machine finds damaged data, it reads the data from the store again.

mod folder;
mod writer;

use bytes::Bytes;
use folder::Folder;
use futures_util::StreamExt;
use nowait::{CacheMode, Nowait};
use nowait_image_format::ImageId;
use nowait_sys::mutex::Mutex;
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use writer::{Write, Writer};
use xxhash_rust::xxh3::Xxh3;

/// The size of a page in bytes. With a cache, the client's GETs of data request whole pages.
pub const PAGE_BYTES: u64 = 16 << 10;

/// The size of a part of a page in bytes. Each part has a checksum of its own, and the cache reads
/// whole parts from a folder.
const PART_BYTES: usize = 4 << 10;

const PARTS: usize = PAGE_BYTES as usize / PART_BYTES;

/// The most pages that the cache reads from a folder at the same time for one request.
const READS_AT_ONCE: usize = 8;

/// How long a read of a page from the folder may take before the read goes to the store instead.
const READ_MAX: Duration = Duration::from_secs(1);

/// The least time for which the cache does not read its folder after a read took longer than
/// [`READ_MAX`]. The cache reads the folder again only when no read of it is pending any more.
const ASIDE: Duration = Duration::from_secs(10);

/// The most pages that wait to be written; the cache stores no further pages meanwhile.
const WRITES_MAX: usize = 2048;

/// The identity of a log: a checksum of the image's number, its store and its path.
pub(crate) type Origin = [u8; 16];

pub(crate) fn origin(image: ImageId, store: &str, path: &str) -> Origin {
    let mut name = Xxh3::new();
    for part in [&image[..], store.as_bytes(), path.as_bytes()] {
        name.update(&(part.len() as u64).to_le_bytes());
        name.update(part);
    }
    name.digest128().to_le_bytes()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Segment {
    pub(crate) origin: Origin,
    pub(crate) sequence: u64,
}

impl Segment {
    fn follows(self, from: Segment) -> bool {
        self.origin == from.origin && self.sequence >= from.sequence
    }

    fn page(self, number: u64) -> PageKey {
        PageKey { segment: self, number: number as u32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PageKey {
    segment: Segment,
    number: u32,
}

/// The checksums of a page's parts; zeroes for a cache in memory and for missing parts.
type Sums = [u32; PARTS];
type Page = nowait_device::pages::Page<PageKey, Sums>;
type Pages = nowait_device::pages::Pages<PageKey, Sums>;

/// A cache of data in segments, which several images may share.
#[derive(Debug)]
pub struct Cache {
    state: Arc<Mutex<State>>,
    folder: Option<(Arc<Folder>, Writer)>,
    say: Option<fn(&str)>,
    fetched: Notify,
}

#[derive(Debug)]
struct State {
    pages: Pages,
    memory: Vec<Bytes>,
    /// Pages that are being written to the folder; reads use these pages.
    writes: HashMap<PageKey, Bytes>,
    /// The first page of each range that a read is fetching from the store.
    fetches: HashSet<PageKey>,
    /// Before this time the cache does not read its folder; `None`: it reads the folder.
    aside_until: Option<Instant>,
}

impl Cache {
    /// Makes a cache of up to `bytes` of memory, allocated as needed, but at least one page.
    pub fn in_memory(bytes: u64) -> Arc<Cache> {
        let slots = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        Arc::new(Cache::new(Pages::new(slots.max(1))))
    }

    /// Opens or makes the cache in a folder, with about `bytes` on the disk at most. Pages from an
    /// earlier run stay if the size is the same. `mode` chooses the page cache between this cache
    /// and the disk. With [`CacheMode::User`] a new cache allocates all of its disk space at once,
    /// and a cache that lacks some of its space loses its pages; otherwise the cache allocates disk
    /// space as needed. `say` gets a line of text when a page cannot be stored for the first time,
    /// and when the disk is full, does not answer, or answers again. Reads that wait for the disk
    /// use request slots of `nowait`, which other requests then lack. Blocks.
    ///
    /// # Errors
    /// One line: another process uses the folder, or the file in it cannot be opened.
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
        let writer = Writer::start(folder.clone(), cache.state.clone(), say)
            .map_err(|error| io::Error::other(format!("{}: {error}", folder.shown())))?;
        (cache.folder, cache.say) = (Some((folder, writer)), say);
        Ok(Arc::new(cache))
    }

    fn new(pages: Pages) -> Cache {
        let (writes, fetches) = (HashMap::new(), HashSet::new());
        let state = State { pages, memory: Vec::new(), writes, fetches, aside_until: None };
        let state = Arc::new(Mutex::new(state));
        Cache { state, folder: None, say: None, fetched: Notify::new() }
    }

    /// Writes pending pages to the disk, and stores no further pages. Dropping the cache does the
    /// same. The call blocks for five seconds at most.
    pub fn end(&self) {
        self.folder.iter().for_each(|(_, writer)| writer.end());
    }

    /// Does not wait for a disk: a cache in a folder returns `None`.
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

    pub(crate) async fn read(&self, segment: Segment, range: &Range<u64>) -> Option<Vec<u8>> {
        if self.folder.is_none() {
            return self.read_now(segment, range);
        }
        if !self.has_all(segment, range) {
            return None;
        }
        let pages =
            parts(range).map(|(number, within)| self.read_page(segment.page(number), within));
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut pages = futures_util::stream::iter(pages).buffered(READS_AT_ONCE);
        while let Some(page) = pages.next().await {
            bytes.extend_from_slice(&page?);
        }
        Some(bytes)
    }

    fn has_all(&self, segment: Segment, range: &Range<u64>) -> bool {
        let has_all = {
            let state = self.state.lock();
            parts(range).all(|(number, _)| state.has(&segment.page(number)))
        };
        has_all && self.asks()
    }

    fn asks(&self) -> bool {
        let mut state = self.state.lock();
        if self.is_aside_in(&state) {
            return false;
        }
        if state.aside_until.take().is_some() {
            drop(state);
            self.say("the disk of the cache answers again");
        }
        true
    }

    /// Returns `true` if the cache does not read its folder because the disk did not answer. The
    /// pending reads occupy memory until the disk answers.
    pub(crate) fn is_aside(&self) -> bool {
        self.is_aside_in(&self.state.lock())
    }

    fn is_aside_in(&self, state: &State) -> bool {
        let is_read = || self.folder.as_ref().is_some_and(|(folder, _)| folder.is_read());
        state.aside_until.is_some_and(|until| Instant::now() < until || is_read())
    }

    fn set_aside(&self) {
        let until = Instant::now() + ASIDE;
        if self.state.lock().aside_until.replace(until).is_none() {
            self.say("the disk of the cache does not answer; reads go to the store until it does");
        }
    }

    fn say(&self, what: &str) {
        if let (Some(say), Some((folder, _))) = (self.say, &self.folder) {
            say(&format!("{}: {what}", folder.shown()));
        }
    }

    /// No writer of the present log may have put segment `from` or a later one.
    pub(crate) fn forget(&self, from: Segment) {
        let mut state = self.state.lock();
        state.pages.forget(|key| key.segment.follows(from));
        state.writes.retain(|key, _| !key.segment.follows(from));
    }

    async fn read_page(&self, key: PageKey, within: Range<usize>) -> Option<Bytes> {
        let (slot, page) = {
            let mut state = self.state.lock();
            if let Some(bytes) = state.writes.get(&key) {
                return (within.end <= bytes.len()).then(|| bytes.slice(within));
            }
            state.pages.find(&key)?
        };
        if within.end > page.len as usize {
            return None;
        }
        let read = self.folder.as_ref()?.0.read(slot, page, within);
        let read = tokio::time::timeout(READ_MAX, read).await;
        let Ok(bytes) = read else {
            self.set_aside();
            return None;
        };
        let mut state = self.state.lock();
        // The slot may hold another page by now.
        let is_there = state.pages.page(slot) == Some(page);
        if bytes.is_none() && is_there {
            state.pages.remove(&key);
        }
        bytes.filter(|_| is_there)
    }

    #[cfg(test)]
    pub(crate) fn segments(&self) -> HashSet<Segment> {
        let state = self.state.lock();
        let pages = (0..state.pages.slots_used()).filter_map(|slot| state.pages.page(slot));
        pages.map(|page| page.key.segment).collect()
    }

    /// Returns the right to fetch a range, unless another read fetches from the same first page on.
    /// In that case waits for the end of the other read, and returns `None`.
    pub(crate) async fn turn(&self, segment: Segment, range: &Range<u64>) -> Option<Turn<'_>> {
        let key = segment.page(range.start / PAGE_BYTES);
        if self.state.lock().fetches.insert(key) {
            return Some(Turn { cache: self, key });
        }
        loop {
            let mut fetched = std::pin::pin!(self.fetched.notified());
            // Enable the notification before checking, so that the end of the other read is not
            // missed.
            fetched.as_mut().enable();
            if !self.state.lock().fetches.contains(&key) {
                return None;
            }
            fetched.await;
        }
    }

    /// Caches the complete pages in `bytes`, which begin at the page boundary `start`. The last
    /// page of a segment may be shorter. With `anew`, replaces pages that the cache holds.
    pub(crate) fn insert(
        &self,
        segment: Segment,
        start: u64,
        bytes: &[u8],
        (segment_bytes, anew): (u64, bool),
    ) {
        let pages = (start..).step_by(PAGE_BYTES as usize).zip(bytes.chunks(PAGE_BYTES as usize));
        for (at, bytes) in pages {
            let is_last = at + bytes.len() as u64 == segment_bytes;
            if bytes.len() as u64 == PAGE_BYTES || is_last {
                self.store(segment.page(at / PAGE_BYTES), bytes, anew);
            }
        }
    }

    fn store(&self, key: PageKey, bytes: &[u8], anew: bool) {
        if !self.wants(&key, anew) {
            return;
        }
        // Compute the checksums before taking the lock, so that other threads need not wait.
        let len = bytes.len() as u32;
        let sums = if self.folder.is_some() { sums(&key, bytes) } else { [0; PARTS] };
        let (page, bytes) = (Page { key, len, sums }, Bytes::copy_from_slice(bytes));
        let mut state = self.state.lock();
        let Some(slot) = state.pages.take() else { return };
        if let Some((_, writer)) = &self.folder {
            // Reads use this pending page from now on, and not a cached page with the same key.
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

    fn wants(&self, key: &PageKey, anew: bool) -> bool {
        let mut state = self.state.lock();
        if anew {
            // Remove the old page even if the cache does not store the new one.
            state.pages.remove(key);
        }
        let is_full = self.folder.is_some() && state.writes.len() >= WRITES_MAX;
        !is_full && (anew || !state.has(key))
    }
}

impl State {
    fn has(&self, key: &PageKey) -> bool {
        self.pages.contains(key) || self.writes.contains_key(key)
    }
}

/// Dropping this value ends the wait of reads that want to fetch from the same page on.
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

fn parts(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let (first, end) = (range.start, range.end);
    (first / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |number| {
        let start = number * PAGE_BYTES;
        let within = first.saturating_sub(start)..(end - start).min(PAGE_BYTES);
        (number, within.start as usize..within.end as usize)
    })
}

pub(crate) fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES * PAGE_BYTES..range.end.next_multiple_of(PAGE_BYTES)
}

fn sums(key: &PageKey, bytes: &[u8]) -> Sums {
    let mut sums = [0; PARTS];
    for (number, part) in bytes.chunks(PART_BYTES).enumerate() {
        sums[number] = part_sum(key, number, part);
    }
    sums
}

fn part_sum(key: &PageKey, part: usize, bytes: &[u8]) -> u32 {
    let PageKey { segment: Segment { origin, sequence }, number } = key;
    let mut sum = Xxh3::new();
    sum.update(origin);
    sum.update(&sequence.to_le_bytes());
    sum.update(&number.to_le_bytes());
    sum.update(&[part as u8]);
    sum.update(bytes);
    sum.digest() as u32
}
