//! Look-ups on real processors, while pages move between files and frames.

use super::executor::Random;
use crate::primitives::{Arc, AtomicU32, Relaxed};
use crate::{Cache, FRAME_BYTES, FolioId, Mapping};

const PAGES: u64 = 300;
const FRAMES: u32 = 128;
const LOOK_UPS: usize = if cfg!(miri) { 200 } else { 200_000 };

fn stamp(mapping: &Mapping, index: u64) -> u64 {
    u64::from(mapping.number()) << 32 | index
}

fn bring_in(mapping: &Mapping, random: &mut Random) {
    let from = random.below(PAGES);
    let mut created = Vec::new();
    let _ = mapping.create_missing(from, from + 1 + random.below(20), &mut created);
    for id in created {
        let folio = mapping.cache().frames().folio(id);
        for page in 0..folio.pages() {
            let words = FRAME_BYTES / 8;
            let first = mapping.cache().frames().data(id).cast::<u64>();
            let value = stamp(mapping, folio.index() + page);
            for word in 0..words {
                // SAFETY: a word of a folio that this thread has locked.
                unsafe { first.add(page as usize * words + word).write(value) };
            }
        }
        mapping.filled(id, Ok(()), &mut Vec::new());
    }
}

fn look(mapping: &Mapping, index: u64) -> bool {
    let Some(pin) = mapping.find(index) else { return false };
    if !pin.state().is_uptodate() {
        return false;
    }
    let (page, _) = pin.at(index * FRAME_BYTES as u64);
    for word in [0, FRAME_BYTES / 8 - 1] {
        // SAFETY: a word of a pinned page. In this test no thread changes a page that is uptodate.
        let value = unsafe { page.cast::<u64>().add(word).read() };
        assert_eq!(value, stamp(mapping, index), "the bytes of another page");
    }
    true
}

#[test]
fn look_ups_never_see_another_page_while_pages_come_and_go() {
    let cache = Cache::with_frames(FRAMES);
    let files = [Mapping::new(&cache), Mapping::new(&cache)];
    let readers = Arc::new(AtomicU32::new(2));
    std::thread::scope(|scope| {
        for seed in 1..3 {
            let (files, readers) = (&files, readers.clone());
            scope.spawn(move || {
                let mut random = Random(seed * 77);
                let mut found = 0;
                let mut at = 0;
                // On a busy machine, a thread may do `LOOK_UPS` look-ups before the first page is
                // in the cache.
                while at < LOOK_UPS || found == 0 {
                    let index = random.below(PAGES);
                    found += u32::from(look(&files[at % 2], index));
                    at += 1;
                }
                readers.fetch_sub(1, Relaxed);
            });
        }
        let mut random = Random(5);
        while readers.load(Relaxed) > 0 {
            bring_in(&files[random.below(2) as usize], &mut random);
            for _ in 0..10 {
                let victim = FolioId::new(1 + random.below(u64::from(FRAMES)) as u32);
                cache.evict(victim.unwrap());
            }
        }
    });
    for file in &files {
        file.truncate(0).unwrap();
    }
    assert_eq!(cache.frames().free_frames(), u64::from(FRAMES));
    assert_eq!(cache.tree_nodes(), 0);
}
