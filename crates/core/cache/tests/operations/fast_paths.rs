//! Attempts on cached pages, which need no iteration if all pages are cached.

use crate::rig::{KIB, MIB, PAGE, Rig};
use nowait_cache::{OpenFile, Tag};
use std::sync::Arc;

fn rig() -> Rig {
    let mut rig = Rig::new(4 * MIB, 2 * MIB);
    rig.run(None, 0, 64 * KIB);
    rig
}

#[test]
fn a_read_of_cached_pages_is_over_at_once() {
    let rig = rig();
    let (bytes, copied) = rig.read_cached(1234, 20_000);
    assert_eq!(copied, 20_000);
    rig.check_bytes(&bytes, 1234);
    assert_eq!(rig.read_cached(3 * MIB, 100).1, 0, "behind the end");
}

#[test]
fn a_read_that_misses_leaves_nothing_and_goes_on_where_it_stopped() {
    let mut rig = rig();
    let before = (rig.cache.wait_counts(), rig.cache.frames().free_frames(), rig.made.len());
    assert_eq!(rig.read_cached(60 * KIB, 16 * KIB).1 as u64, 4 * KIB);
    let mut read = rig.read(60 * KIB, 16 * KIB);
    assert_eq!(before, (rig.cache.wait_counts(), rig.cache.frames().free_frames(), 1));
    assert_eq!(rig.iterate(&mut read), None);
    rig.complete_all();
    assert_eq!(rig.iterate(&mut read), Some(16 << 10));
    rig.check(&read, 60 * KIB);
}

#[test]
fn a_marked_page_needs_an_iteration_which_does_not_wait() {
    let (mut rig, open) = (rig(), Arc::new(OpenFile::new(128)));
    rig.run(Some(&open), MIB, 16 * KIB);
    rig.run(Some(&open), MIB + 16 * KIB, 16 * KIB);
    rig.complete_all();
    let made = rig.made.len();
    let (mut at, mut iterated) = (MIB + 32 * KIB, 0);
    while rig.made.len() == made {
        if rig.read_cached(at, 16 * KIB).1 as u64 != 16 * KIB {
            let mut read = rig.read(at, 16 * KIB);
            read.operation = read.operation.with_readahead(open.clone(), false);
            iterated += 1;
            assert!(rig.iterate(&mut read).is_some(), "it was there");
            rig.check(&read, at);
        }
        at += 16 * KIB;
    }
    assert_eq!(iterated, 1);
}

#[test]
fn a_write_to_pages_at_rest_is_over_at_once() {
    let mut rig = rig();
    assert_eq!(rig.write_cached(100, vec![7; 10_000]).1, 10_000);
    assert!(rig.file.mapping().look_up(0).unwrap().state().is_dirty());
    let mut read = rig.read(100, 10_000);
    assert_eq!(rig.iterate(&mut read), Some(10_000));
    assert!(read.buffer.iter().all(|byte| *byte == 7));
}

#[test]
fn what_a_write_has_to_wait_for_is_left_to_an_iteration() {
    let mut rig = rig();
    let (mut missing, copied) = rig.write_cached(62 * KIB, vec![9; 4096]);
    assert_eq!(copied, 2048, "the second page is missing");
    assert_eq!(rig.made.len(), 1, "nothing was read for it");
    assert_eq!(rig.iterate_write(&mut missing), None);
    rig.complete_all();
    assert_eq!(rig.iterate_write(&mut missing), Some(4096), "with what was copied before");
    let mut read = rig.read(62 * KIB, 4096);
    assert_eq!(rig.iterate(&mut read), Some(4096));
    assert!(read.buffer.iter().all(|byte| *byte == 9));

    let mut run = Vec::new();
    rig.file.mapping().start_writeback(0, u64::MAX, Tag::Dirty, 256, &mut run).unwrap();
    let mut plug = Vec::new();
    rig.file.write_back(&run, &mut plug);
    rig.queue(plug);
    assert_eq!(rig.write_cached(60 * KIB, vec![5; 1000]).1, 0, "it is being written");
    rig.complete_all();
    assert_eq!(rig.write_cached(60 * KIB, vec![5; 1000]).1, 1000);
}

#[test]
fn a_write_among_too_many_dirty_pages_is_left_to_an_iteration() {
    let mut rig = Rig::new(2 * MIB, 4 * MIB);
    for n in 0..129 {
        rig.run_write(n * PAGE, vec![1; 4096]);
    }
    rig.run(None, 3 * MIB, PAGE);
    let (mut write, copied) = rig.write_cached(3 * MIB, vec![2; 100]);
    assert_eq!(copied, 0);
    assert_eq!(rig.iterate_write(&mut write), Some(100), "which starts the writeback");
    assert!(rig.in_flight_bytes() > 0);
}
