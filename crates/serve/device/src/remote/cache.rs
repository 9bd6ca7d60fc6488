//! A cache in memory for the data of images on NBD servers.
//!
//! ```text
//!   a read ──▶ all pages cached? ──▶ answered
//!              └ no ─▶ the server reads whole pages ──▶ cached, unless changed meanwhile
//!   a change begins ──▶ its pages are dropped ──▶ the server does it ──▶ written data is cached
//! ```
//! The cache holds only data that the server holds. So while a change of a page is in flight, the
//! cache does not hold the page: the server's contents are unknown meanwhile, and a read may return
//! older data. Nor does the cache take the data of a write that another change has overlapped: the
//! server may have carried out either of them first. A change that fails leaves none of its pages
//! in the cache.

use super::{
    changes::Changes,
    wire::{Command, Kind},
};
use crate::pages::{Page, Pages};
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

pub(super) const PAGE_BYTES: u64 = 4096;

/// A cache that several images may share.
#[derive(Debug)]
pub struct Cache {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pages: Pages<PageKey>,
    memory: Vec<Box<[u8; PAGE_BYTES as usize]>>,
    changes: Vec<Changes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PageKey {
    image: u32,
    number: u64,
}

/// How many reads of an image the cache answered, and how many it could not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Reads that the cache answered.
    pub hits: u64,
    /// Reads of which the cache did not hold all bytes.
    pub misses: u64,
}

impl Cache {
    /// Makes a cache of up to `bytes` of memory, allocated as needed, but at least one page.
    pub fn new(bytes: u64) -> Arc<Cache> {
        let slots = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        let pages = Pages::new(slots.max(1));
        Arc::new(Cache { state: Mutex::new(State { pages, memory: Vec::new(), changes: vec![] }) })
    }

    pub(super) fn image(self: &Arc<Cache>, end: u64) -> ImageCache {
        let mut state = self.state.lock();
        let image = state.changes.len() as u32;
        state.changes.push(Changes::new());
        ImageCache {
            cache: self.clone(),
            image,
            end,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }
}

#[derive(Debug)]
pub(super) struct ImageCache {
    cache: Arc<Cache>,
    image: u32,
    /// The end of the last page, in bytes.
    end: u64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl ImageCache {
    pub(super) fn counts(&self) -> CacheCounts {
        CacheCounts { hits: self.hits.load(Relaxed), misses: self.misses.load(Relaxed) }
    }

    pub(super) fn span(&self, blocks: &Range<u64>) -> Range<u64> {
        let Range { start, end } = pages_of(blocks);
        start * PAGE_BYTES..(end * PAGE_BYTES).min(self.end).max(blocks.end)
    }

    pub(super) fn read(&self, bytes: &mut [u8], at: u64) -> bool {
        let is_hit = self.cache.state.lock().copy(self.image, bytes, at).is_some();
        let count = if is_hit { &self.hits } else { &self.misses };
        count.fetch_add(1, Relaxed);
        is_hit
    }

    /// Drops the pages that the request changes; `None`: the request neither reads nor changes
    /// pages.
    pub(super) fn begin(self: &Arc<ImageCache>, command: &Command) -> Option<Visit> {
        if !(command.reads() || command.changes()) {
            return None;
        }
        let pages = pages_of(&command.range());
        let mut state = self.cache.state.lock();
        let changes = &mut state.changes[self.image as usize];
        let alone = changes.mark(&pages).is_some();
        if command.changes() {
            changes.begin(&pages);
        }
        let mark = alone.then(|| changes.begun(&pages));
        if command.changes() {
            let keys = pages.clone().map(|number| PageKey { image: self.image, number });
            keys.for_each(|key| state.pages.remove(&key));
        }
        drop(state);
        Some(Visit { image: self.clone(), command: *command, pages, mark })
    }

    /// Removes all pages of the image from the cache, because reads of the image must fail from now
    /// on.
    pub(super) fn end(&self) {
        self.cache.state.lock().pages.forget(|key| key.image == self.image);
    }
}

/// A request in flight that reads or changes pages. Dropping it ends the change.
#[derive(Debug)]
pub(super) struct Visit {
    image: Arc<ImageCache>,
    command: Command,
    pages: Range<u64>,
    /// [`Changes::begun`] at the start; `None`: another change of these pages was in flight then.
    mark: Option<u64>,
}

impl Visit {
    /// Caches whole pages of a successful read or write, unless another change overlapped.
    pub(super) fn end_well(self, bytes: &[u8]) {
        if !matches!(self.command.kind, Kind::Read | Kind::Write) {
            return;
        }
        let ImageCache { cache, image, end, .. } = &*self.image;
        let mut state = cache.state.lock();
        // Other changes were in flight when the request began, or have begun since.
        if self.mark != Some(state.changes[*image as usize].begun(&self.pages)) {
            return;
        }
        let Range { start, end: behind } = self.command.range();
        for number in start.div_ceil(PAGE_BYTES)..self.pages.end {
            let first = number * PAGE_BYTES;
            let last = (first + PAGE_BYTES).min(*end);
            if last <= behind {
                let page = &bytes[(first - start) as usize..(last - start) as usize];
                state.put(PageKey { image: *image, number }, page);
            }
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if self.command.changes() {
            let ImageCache { cache, image, .. } = &*self.image;
            cache.state.lock().changes[*image as usize].end(&self.pages);
        }
    }
}

impl State {
    fn copy(&mut self, image: u32, bytes: &mut [u8], at: u64) -> Option<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            let (slot, page) = self.pages.find(&PageKey { image, number: at / PAGE_BYTES })?;
            let page = &self.memory[slot as usize][..page.len as usize];
            let part = page.get((at % PAGE_BYTES) as usize..).filter(|part| !part.is_empty())?;
            let len = part.len().min(bytes.len() - done);
            bytes[done..done + len].copy_from_slice(&part[..len]);
            done += len;
        }
        Some(())
    }

    fn put(&mut self, key: PageKey, bytes: &[u8]) {
        if self.pages.contains(&key) {
            return;
        }
        let Some(slot) = self.pages.take() else { return };
        let place = slot as usize;
        if self.memory.len() == place {
            self.memory.push(Box::new([0; PAGE_BYTES as usize]));
        }
        self.memory[place][..bytes.len()].copy_from_slice(bytes);
        self.pages.put(slot, Page { key, len: bytes.len() as u32, sums: () });
    }
}

fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = PAGE_BYTES;
    const SIZE: u64 = 10 * PAGE + 512;

    fn command(kind: Kind, range: &Range<u64>) -> Command {
        let len = (range.end - range.start) as u32;
        Command { kind, flags: 0, at: range.start, len }
    }

    struct Scene {
        images: [Arc<ImageCache>; 2],
        far: [Vec<u8>; 2],
        asked: Vec<InFlight>,
        done: Vec<InFlight>,
        next: u8,
    }

    struct InFlight {
        image: usize,
        command: Command,
        bytes: Vec<u8>,
        fails: bool,
        visit: Option<Visit>,
    }

    fn place(range: &Range<u64>) -> Range<usize> {
        range.start as usize..range.end as usize
    }

    impl Scene {
        /// Makes a cache that has no room for all pages.
        fn new() -> Scene {
            let cache = Cache::new(8 * PAGE);
            let images = [0, 1].map(|_| Arc::new(cache.image(SIZE)));
            let far = [1, 2].map(|byte| vec![byte; SIZE as usize]);
            Scene { images, far, asked: Vec::new(), done: Vec::new(), next: 3 }
        }

        fn ask(&mut self, image: usize, kind: Kind, blocks: &Range<u64>) {
            let cached = &self.images[image];
            let range = if kind == Kind::Read { cached.span(blocks) } else { blocks.clone() };
            let command = command(kind, &range);
            let visit = cached.begin(&command);
            self.next = self.next.wrapping_add(1);
            let bytes = vec![self.next; if kind == Kind::Write { command.len as usize } else { 0 }];
            self.asked.push(InFlight { image, command, bytes, fails: false, visit });
        }

        /// If the request `fails`, the server carries out all, a half or a third of it.
        fn carry_out(&mut self, which: usize, fails: Option<u64>) {
            if self.asked.is_empty() {
                return;
            }
            let mut one = self.asked.remove(which % self.asked.len());
            let mut range = one.command.range();
            one.fails = fails.is_some();
            range.end = range.start + (range.end - range.start) / fails.map_or(1, |part| part + 1);
            let far = &mut self.far[one.image][place(&range)];
            match one.command.kind {
                Kind::Read => one.bytes = far.to_vec(),
                Kind::Write => far.copy_from_slice(&one.bytes[..far.len()]),
                _ => far.fill(0),
            }
            self.done.push(one);
        }

        fn answer(&mut self, which: usize) {
            if self.done.is_empty() {
                return;
            }
            let one = self.done.remove(which % self.done.len());
            if !one.fails {
                one.visit.unwrap().end_well(&one.bytes);
            }
        }

        fn is_changing(&self, image: usize, range: &Range<u64>) -> bool {
            self.asked.iter().chain(&self.done).any(|one| {
                let its = one.command.range();
                let overlap = its.start < range.end && range.start < its.end;
                one.image == image && one.command.changes() && overlap
            })
        }

        fn check(&self) {
            for (image, cached) in self.images.iter().enumerate() {
                for start in (0..SIZE).step_by(PAGE as usize) {
                    let range = start..(start + PAGE).min(SIZE);
                    let mut bytes = vec![0; (range.end - range.start) as usize];
                    if cached.read(&mut bytes, start) {
                        assert!(bytes == self.far[image][place(&range)], "{image}: {range:?}");
                        assert!(!self.is_changing(image, &range), "{image}: {range:?} changes");
                    }
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(usize, Kind, Range<u64>),
        CarryOut(usize, Option<u64>),
        Answer(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let kind = prop_oneof![
            4 => Just(Kind::Read),
            4 => Just(Kind::Write),
            1 => Just(Kind::Trim),
            1 => Just(Kind::WriteZeroes),
        ];
        let unit = prop_oneof![3 => Just(PAGE), 1 => Just(512)];
        let range = (unit, any::<prop::sample::Index>(), 1..4_u64).prop_map(|(unit, at, count)| {
            let start = at.index((SIZE / unit) as usize) as u64 * unit;
            start..(start + count * unit).min(SIZE)
        });
        let fails = prop_oneof![4 => Just(None), 1 => (0..3_u64).prop_map(Some)];
        let step = prop_oneof![
            (0..2_usize, kind, range)
                .prop_map(|(image, kind, range)| Step::Ask(image, kind, range)),
            (any::<usize>(), fails).prop_map(|(which, fails)| Step::CarryOut(which, fails)),
            any::<usize>().prop_map(Step::Answer),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn the_cache_holds_what_the_server_holds(steps in steps()) {
            let mut scene = Scene::new();
            for step in steps {
                match step {
                    Step::Ask(image, kind, range) => scene.ask(image, kind, &range),
                    Step::CarryOut(which, fails) => scene.carry_out(which, fails),
                    Step::Answer(which) => scene.answer(which),
                }
                scene.check();
            }
        }
    }

    fn is_here(scene: &Scene, range: &Range<u64>) -> bool {
        scene.images[0].read(&mut vec![0; (range.end - range.start) as usize], range.start)
    }

    fn done(scene: &mut Scene, kind: Kind, range: &Range<u64>) {
        scene.ask(0, kind, range);
        scene.carry_out(0, None);
        scene.answer(0);
    }

    #[test]
    fn data_read_or_written_is_cached_until_it_changes() {
        let mut scene = Scene::new();
        done(&mut scene, Kind::Read, &(5 * 512..6 * 512));
        assert!(is_here(&scene, &(0..PAGE)), "the page around it");
        done(&mut scene, Kind::Write, &(PAGE - 512..3 * PAGE));
        assert!(is_here(&scene, &(PAGE..3 * PAGE)), "all pages of it");
        assert!(!is_here(&scene, &(0..512)), "a part of a page is not one");
        done(&mut scene, Kind::Write, &(10 * PAGE..SIZE));
        assert!(is_here(&scene, &(10 * PAGE + 100..SIZE)), "the last page is short");
        for (kind, page) in [(Kind::Trim, 1), (Kind::WriteZeroes, 2)] {
            let range = page * PAGE..(page + 1) * PAGE;
            assert!(is_here(&scene, &range));
            done(&mut scene, kind, &range);
            assert!(!is_here(&scene, &range), "{kind:?}");
        }
        let counts = scene.images[0].counts();
        assert_eq!((counts.hits, counts.misses), (5, 3));
    }

    #[test]
    fn adjacent_writes_do_not_evict_each_other() {
        let mut scene = Scene::new();
        (0..4).for_each(|page| scene.ask(0, Kind::Write, &(page * PAGE..(page + 1) * PAGE)));
        (0..4).for_each(|_| scene.carry_out(0, None));
        (0..4).for_each(|_| scene.answer(0));
        assert!(is_here(&scene, &(0..4 * PAGE)));
        for _ in 0..20 {
            done(&mut scene, Kind::Write, &(0..PAGE));
        }
        assert!(is_here(&scene, &(0..4 * PAGE)));
    }

    #[test]
    fn no_page_of_an_ended_image_is_cached() {
        let mut scene = Scene::new();
        done(&mut scene, Kind::Read, &(0..PAGE));
        scene.images[1].end();
        assert!(is_here(&scene, &(0..PAGE)), "it is another one's");
        scene.images[0].end();
        assert!(!is_here(&scene, &(0..PAGE)));
    }
}
