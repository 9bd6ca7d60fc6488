//! Tests of the state changes of a mapping's folios.
#![cfg(not(loom))]

use super::*;
use crate::pages::Pages;
use crate::primitives::AtomicU32;
use crate::primitives::SeqCst;
use std::task::{Wake, Waker};

struct Kicks(AtomicU32);

impl Default for Kicks {
    fn default() -> Kicks {
        Kicks(AtomicU32::new(0))
    }
}

impl Wake for Kicks {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Kicks {
    fn entry(self: &Arc<Self>) -> WaitEntry {
        Waker::from(self.clone())
    }

    fn count(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

fn waking(step: impl FnOnce(&mut Vec<WaitEntry>)) -> usize {
    let mut woken = Vec::new();
    step(&mut woken);
    let count = woken.len();
    woken.into_iter().for_each(WaitEntry::wake);
    count
}

fn fill(mapping: &Mapping, from: u64, end: u64) -> Vec<FolioId> {
    let mut created = Vec::new();
    mapping.create_missing(from, end, &mut created).unwrap();
    for id in &created {
        waking(|woken| mapping.filled(*id, Ok(()), woken));
    }
    created
}

fn dirty(mapping: &Mapping, index: u64) {
    let (pin, locked) = mapping.find_to_write(index).unwrap();
    locked.unwrap();
    let page = (index - pin.folio().index()) as u32;
    waking(|woken| mapping.changed(pin.id(), Pages::range(page, 1), woken));
}

fn orders(mapping: &Mapping, ids: &[FolioId]) -> Vec<u32> {
    ids.iter().map(|id| mapping.cache.frames.folio(*id).order()).collect()
}

#[test]
fn a_request_gets_the_largest_aligned_folios_that_overlap_nothing() {
    let cache = Cache::with_frames(256);
    let mapping = Mapping::new(&cache);
    assert_eq!(orders(&mapping, &fill(&mapping, 17, 18)), [0]);
    assert_eq!(orders(&mapping, &fill(&mapping, 0, 64)), [4, 0, 1, 2, 3, 5]);
    assert_eq!(fill(&mapping, 3, 40), [], "all there");
    for index in 0..64 {
        let pin = mapping.find(index).unwrap();
        assert!(pin.folio().holds(mapping.number(), index));
    }
    assert!(mapping.look_up(64).is_none());
}

#[test]
fn a_miss_locks_once_and_the_second_reader_waits_for_the_first() {
    let cache = Cache::with_frames(64);
    let mapping = Mapping::new(&cache);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    mapping.create_missing(0, 16, &mut first).unwrap();
    mapping.create_missing(0, 16, &mut second).unwrap();
    assert_eq!((first.len(), second.len()), (1, 0));
    let kicks = Arc::new(Kicks::default());
    let pin = mapping.find(7).unwrap();
    assert!(!pin.state().is_uptodate());
    assert!(mapping.wait(&pin, Reason::Unlocked, || kicks.entry()));
    assert_eq!(waking(|woken| mapping.filled(first[0], Ok(()), woken)), 1);
    assert_eq!(kicks.count(), 1);
    assert!(!mapping.wait(&pin, Reason::Unlocked, || kicks.entry()), "nothing to wait for");
    assert!(pin.state().is_uptodate());
}

#[test]
fn a_failed_fill_is_tried_again_by_the_next_reader() {
    let cache = Cache::with_frames(64);
    let mapping = Mapping::new(&cache);
    let mut created = Vec::new();
    mapping.create_missing(0, 1, &mut created).unwrap();
    waking(|woken| mapping.filled(created[0], Err(Errno::IO), woken));
    let state = mapping.find(0).unwrap().state();
    assert!(state.is_error() && !state.is_uptodate());
    let mut again = Vec::new();
    mapping.create_missing(0, 1, &mut again).unwrap();
    assert_eq!(again, created);
    assert!(mapping.find(0).unwrap().state().is_locked());
    waking(|woken| mapping.filled(again[0], Ok(()), woken));
}

/// In the kernel of 2003 the end of I/O on one page kicked operations that waited for another page
/// of the same queue, and two operations could kick each other for ever.
#[test]
fn operations_in_one_hash_bucket_never_kick_each_other() {
    let cache = Cache::with_frames(1024);
    let mapping = Mapping::new(&cache);
    let mut pages = Vec::new();
    let count = if cfg!(miri) { 80 } else { 512 };
    for index in 0..count {
        mapping.create_missing(index, index + 1, &mut pages).unwrap();
    }
    let all: Vec<Arc<Kicks>> = pages.iter().map(|_| Arc::default()).collect();
    for (index, kicks) in all.iter().enumerate() {
        let pin = mapping.find(index as u64).unwrap();
        assert!(mapping.wait(&pin, Reason::Unlocked, || kicks.entry()));
    }
    for (done, id) in pages.iter().enumerate() {
        assert_eq!(waking(|woken| mapping.filled(*id, Ok(()), woken)), 1);
        let counts: u32 = all.iter().map(|kicks| kicks.count()).sum();
        assert_eq!((all[done].count(), counts as usize), (1, done + 1));
    }
    let counts = cache.wait_counts();
    assert_eq!((counts.armed, counts.kicked), (count, count));
}

#[test]
fn waiters_are_kicked_by_their_reason_only_and_in_order() {
    let cache = Cache::with_frames(64);
    let mapping = Mapping::new(&cache);
    let id = fill(&mapping, 0, 1)[0];
    dirty(&mapping, 0);
    let mut run = Vec::new();
    assert_eq!(mapping.start_writeback(0, u64::MAX, Tag::Dirty, 64, &mut run), Some(1));
    let (pin, outcome) = mapping.find_to_write(0).unwrap();
    assert_eq!(outcome, Err(Reason::Written), "stable while it is written");
    let kicks = Arc::new(Kicks::default());
    assert!(mapping.wait(&pin, Reason::Written, || kicks.entry()));
    assert!(!mapping.wait(&pin, Reason::Unlocked, || kicks.entry()));
    assert_eq!(waking(|woken| _ = mapping.written(id, Pages::ALL, Ok(()), woken)), 1);
    assert!(!pin.state().has(crate::folio::WAITERS), "the mark goes with the last entry");
}

#[test]
fn a_sync_is_not_chased_by_new_dirt_and_writes_ascending_runs() {
    let cache = Cache::with_frames(256);
    let mapping = Mapping::new(&cache);
    fill(&mapping, 0, 64);
    fill(&mapping, 100, 101);
    dirty(&mapping, 100);
    dirty(&mapping, 5);
    mapping.tag_for_writeback(0, u64::MAX);
    fill(&mapping, 101, 102);
    dirty(&mapping, 101);
    let mut run = Vec::new();
    let next = mapping.start_writeback(0, u64::MAX, Tag::Towrite, 1024, &mut run);
    assert_eq!((next, run.len()), (Some(64), 1), "the folio of page 5");
    let next = mapping.start_writeback(64, u64::MAX, Tag::Towrite, 1024, &mut run);
    assert_eq!((next, run.len()), (Some(101), 2), "page 101 came later");
    assert_eq!(mapping.start_writeback(101, u64::MAX, Tag::Towrite, 1024, &mut run), None);
    assert_eq!(mapping.next_tagged(0, 99, Tag::Writeback).unwrap().0, 0);
    assert_eq!(cache.dirty_frames(), 66);
    for id in run {
        waking(|woken| _ = mapping.written(id, Pages::ALL, Ok(()), woken));
    }
    assert_eq!(cache.dirty_frames(), 1);
    assert!(mapping.next_tagged(0, u64::MAX, Tag::Writeback).is_none());
}

#[test]
fn a_failed_writeback_leaves_the_folio_dirty_and_marked_until_one_succeeds() {
    let cache = Cache::with_frames(64);
    let mapping = Mapping::new(&cache);
    fill(&mapping, 0, 1);
    dirty(&mapping, 0);
    for result in [Err(Errno::NOSPC), Ok(())] {
        let mut run = Vec::new();
        mapping.start_writeback(0, u64::MAX, Tag::Dirty, 64, &mut run).unwrap();
        waking(|woken| _ = mapping.written(run[0], Pages::ALL, result, woken));
        let pin = mapping.find(0).unwrap();
        let state = pin.state();
        assert_eq!((state.is_dirty(), state.is_error()), (result.is_err(), result.is_err()));
        assert_eq!(mapping.write_error(0, u64::MAX), result.err());
    }
    assert_eq!(cache.dirty_frames(), 0);
}

#[test]
fn eviction_takes_clean_folios_without_pins() {
    let cache = Cache::with_frames(64);
    let mapping = Mapping::new(&cache);
    let id = fill(&mapping, 0, 4)[0];
    let pin = mapping.find(0).unwrap();
    assert!(!cache.evict(id), "pinned");
    drop(pin);
    dirty(&mapping, 0);
    assert!(!cache.evict(id), "dirty");
    let mut run = Vec::new();
    mapping.start_writeback(0, u64::MAX, Tag::Dirty, 64, &mut run).unwrap();
    assert!(!cache.evict(id), "being written");
    waking(|woken| _ = mapping.written(id, Pages::ALL, Ok(()), woken));
    assert!(cache.evict(id));
    assert!(!cache.evict(id), "free");
    assert!(mapping.look_up(0).is_none());
    assert_eq!((cache.frames.free_frames(), cache.tree_nodes()), (64, 0));
}

#[test]
fn truncate_waits_for_those_at_work_and_detaches_what_is_read() {
    let cache = Cache::with_frames(64);
    let mapping = Mapping::new(&cache);
    fill(&mapping, 0, 8);
    fill(&mapping, 8, 9);
    dirty(&mapping, 8);
    let mut run = Vec::new();
    mapping.start_writeback(8, 8, Tag::Dirty, 1, &mut run).unwrap();
    let busy = mapping.truncate(1).unwrap_err();
    assert_eq!((busy.pin.folio().index(), busy.reason), (8, Reason::Written));
    drop(busy);
    waking(|woken| _ = mapping.written(run[0], Pages::ALL, Ok(()), woken));
    let guard = mapping.find(8).unwrap();
    mapping.truncate(1).unwrap();
    assert!(mapping.look_up(8).is_none() && mapping.look_up(7).is_some());
    assert_eq!(cache.frames.free_frames(), 64 - 9, "the guard keeps its page");
    drop(guard);
    assert_eq!(cache.frames.free_frames(), 64 - 8);
    drop(mapping);
    assert_eq!((cache.frames.free_frames(), cache.tree_nodes()), (64, 0));
}

#[test]
fn invalidation_leaves_dirty_folios() {
    let cache = Cache::with_frames(64);
    let mapping = Mapping::new(&cache);
    fill(&mapping, 0, 4);
    fill(&mapping, 4, 5);
    dirty(&mapping, 4);
    assert_eq!(mapping.invalidate(2, 9).unwrap(), 1);
    assert!(mapping.look_up(0).is_none() && mapping.look_up(4).is_some());
}

#[test]
fn an_exhausted_pool_gives_what_it_has() {
    let cache = Cache::with_frames(10);
    let mapping = Mapping::new(&cache);
    let mut created = Vec::new();
    assert_eq!(mapping.create_missing(0, 16, &mut created), Err(NoFrames));
    assert_eq!(orders(&mapping, &created), [3, 1]);
    for id in created {
        waking(|woken| mapping.filled(id, Ok(()), woken));
    }
    let pin = mapping.find(9).unwrap();
    let kicks = Arc::new(Kicks::default());
    cache.frames.wait_for_room(kicks.entry());
    drop(pin);
    assert_eq!(kicks.count(), 1, "a folio that can be reclaimed is room");
    drop(mapping.find(9));
    assert_eq!(kicks.count(), 1, "once");
}

#[test]
fn a_number_is_not_used_again_before_its_pages_are_gone() {
    let cache = Cache::with_frames(64);
    let mapping = Mapping::new(&cache);
    let number = mapping.number();
    let id = fill(&mapping, 0, 1)[0];
    assert!(cache.mapping(number).is_some());
    drop(mapping);
    assert!(cache.frames.folio(id).state().is_frozen());
    let other = Mapping::new(&cache);
    assert_eq!(other.number(), number);
    assert!(other.look_up(0).is_none());
}
