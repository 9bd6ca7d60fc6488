//! Bytes lent without a copy.

use crate::rig::{KIB, Kicks, MIB, Rig, entry_of};
use nowait_cache::{Change, PinnedRange};
use nowait_retry::Step;
use std::sync::Arc;

fn rig() -> Rig {
    let mut rig = Rig::new(4 * MIB, 2 * MIB);
    rig.run(None, 0, 128 * KIB);
    rig
}

fn cut(rig: &Rig, size: u64) -> Change {
    let mut change = Change::cut(&rig.file, size);
    let step = change.iterate(&mut Vec::new(), &|| unreachable!("nothing is in flight"));
    assert_eq!(step, Step::Done(Ok(0)));
    change
}

fn bytes(range: &PinnedRange) -> Vec<u8> {
    range.chunks().flatten().copied().collect()
}

#[test]
fn chunks_are_the_bytes_of_the_file_up_to_its_end() {
    let mut rig = rig();
    rig.run(None, 2 * MIB - 8 * KIB, 8 * KIB);
    for (offset, len) in [(0, 128 * KIB), (100, 1), (5000, 100_000), (4096, 4096), (7, 0)] {
        let range = rig.file.pin_range(offset, len as usize).unwrap();
        assert_eq!((range.len() as u64, range.is_empty()), (len, len == 0));
        assert!(bytes(&range) == rig.pattern(offset, offset + len));
    }
    let range = rig.file.pin_range(2 * MIB - 5000, 1 << 20).unwrap();
    assert!(bytes(&range) == rig.pattern(2 * MIB - 5000, 2 * MIB));
    assert!(rig.file.pin_range(3 * MIB, 100).unwrap().is_empty());
}

#[test]
fn a_range_with_a_missing_page_is_not_lent_and_nothing_stays_pinned() {
    let rig = rig();
    assert!(rig.file.pin_range(0, 129 << 10).is_none());
    let pin = rig.file.mapping().look_up(0).unwrap();
    assert_eq!((pin.state().pins(), pin.state().is_guarded()), (1, false));
}

#[test]
fn a_writer_waits_until_the_last_guard_is_gone_and_is_kicked_once() {
    let mut rig = rig();
    let (first, second) = (rig.file.pin_range(0, 5000), rig.file.pin_range(100, 64 << 10));
    let (mut write, copied) = rig.write_cached(4096, vec![1; 4096]);
    assert_eq!(copied, 0);
    assert_eq!(rig.iterate_write(&mut write), None);
    assert!(rig.file.pin_range(0, 100).is_none(), "a writer waits: nothing more is lent");
    drop(first);
    assert_eq!(write.kicks.count(), 0);
    assert!(bytes(second.as_ref().unwrap()) == rig.pattern(100, 100 + (64 << 10)), "unchanged");
    drop(second);
    assert_eq!(write.kicks.count(), 1);
    assert_eq!(rig.iterate_write(&mut write), Some(4096));
    let range = rig.file.pin_range(4096, 4096).unwrap();
    assert!(bytes(&range).iter().all(|byte| *byte == 1));
}

#[test]
fn readers_and_writeback_do_not_mind_a_guard() {
    let mut rig = rig();
    rig.run_write(0, rig.pattern(0, 4096).to_vec());
    let range = rig.file.pin_range(0, 4096).unwrap();
    rig.run(None, 0, 64 * KIB);
    let mut plug = Vec::new();
    rig.cache.clean(100, &mut plug);
    rig.queue(plug);
    rig.complete_all();
    assert_eq!(rig.cache.dirty_frames(), 0);
    assert!(bytes(&range) == rig.pattern(0, 4096));
}

#[test]
fn lent_pages_stay_when_others_are_evicted_and_when_the_file_is_cut() {
    let mut rig = Rig::new(2 * MIB, 8 * MIB);
    rig.run(None, 0, 64 * KIB);
    let range = rig.file.pin_range(0, 64 << 10).unwrap();
    for n in 1..128 {
        rig.run(None, n * 64 * KIB, 64 * KIB);
    }
    assert!(rig.is_there(0));
    cut(&rig, 0).finish(0);
    let free = rig.cache.frames().free_frames();
    assert!(bytes(&range) == rig.pattern(0, 64 << 10), "the old bytes, of frames in no other use");
    drop(range);
    assert_eq!(rig.cache.frames().free_frames(), free + 16);
}

#[test]
fn a_cut_inside_a_lent_folio_waits_for_it() {
    let mut rig = rig();
    let range = rig.file.pin_range(0, 100).unwrap();
    let (mut change, kicks) = (Change::cut(&rig.file, 50), Arc::new(Kicks::default()));
    let mut iterate = || change.iterate(&mut Vec::new(), &entry_of(&kicks));
    assert_eq!(iterate(), Step::Retry);
    rig.run(None, MIB, 4096);
    assert!(bytes(&range) == rig.pattern(0, 100));
    drop(range);
    assert_eq!((kicks.count(), iterate()), (1, Step::Done(Ok(0))));
    change.finish(50);
    assert!(bytes(&rig.file.pin_range(0, 100).unwrap()) == rig.pattern(0, 50));
}
