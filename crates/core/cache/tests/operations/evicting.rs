//! Eviction: which pages stay, and how operations wait when frames run out.

use crate::rig::{KIB, MIB, PAGE, Rig};
use nowait_block::BioOp;
use nowait_cache::OpenFile;
use std::sync::Arc;

const HOT_PAGES: u64 = 256;

fn hot(n: u64) -> u64 {
    n * 7 * PAGE
}

/// Returns how many pages of a hot set are still cached after a scan of two thirds of the file.
fn left_after_scan(request: u64, open: Option<&Arc<OpenFile>>) -> u64 {
    let mut rig = Rig::new(4 * MIB, 24 * MIB);
    for _ in 0..4 {
        (0..HOT_PAGES).for_each(|n| _ = rig.run(None, hot(n), PAGE));
    }
    let mut at = 8 * MIB;
    while at < 24 * MIB {
        rig.run(open, at, request);
        at += request;
    }
    (0..HOT_PAGES).filter(|n| rig.is_there(hot(*n) / PAGE)).count() as u64
}

#[test]
fn a_scan_leaves_the_hot_set() {
    let open = Arc::new(OpenFile::new(128));
    for (request, open) in [(4 * KIB, Some(&open)), (64 * KIB, Some(&open)), (64 * KIB, None)] {
        let left = left_after_scan(request, open);
        assert!(left >= HOT_PAGES * 95 / 100, "{left} of {HOT_PAGES}, requests of {request}");
    }
}

#[test]
fn what_eviction_finds_dirty_is_written_before_a_waiter_comes() {
    let mut rig = Rig::new(2 * MIB, 8 * MIB);
    // So few dirty pages do not make the writers start writeback themselves.
    for n in 0..120 {
        rig.run_write(n * PAGE, vec![n as u8; 4096]);
    }
    let written = |rig: &Rig| rig.made.iter().filter(|made| made.op == BioOp::Write).count();
    assert_eq!(written(&rig), 0);
    for n in 0..96 {
        let mut read = rig.read(2 * MIB + n * 64 * KIB, 64 * KIB);
        assert_eq!(rig.iterate(&mut read), None);
        // Waits only for the request's own pages, because each of them got a frame at once.
        while read.kicks.count() < read.iterations {
            rig.complete_oldest();
        }
        assert_eq!(rig.iterate(&mut read), Some(64 << 10), "read {n}");
    }
    assert!(written(&rig) > 0, "and the dirty ones left too");
}

#[test]
fn pages_that_left_and_come_back_soon_are_kept() {
    let mut rig = Rig::new(2 * MIB, 8 * MIB);
    rig.run(None, 0, PAGE);
    for n in 1..600 {
        rig.run(None, n * PAGE, PAGE);
    }
    assert!(!rig.is_there(0), "it left");
    rig.run(None, 0, PAGE);
    for n in 600..2000 {
        rig.run(None, n * PAGE, PAGE);
    }
    assert!(rig.is_there(0), "remembered, it outlives newcomers");
}

#[test]
fn pinned_pages_do_not_hide_those_that_can_leave() {
    let mut rig = Rig::new(16 * MIB, 24 * MIB);
    let mut lent = Vec::new();
    for n in 0..4000 {
        rig.run(None, n * PAGE, PAGE);
        lent.push(rig.file.pin_range(n * PAGE, 4096).unwrap());
    }
    for n in 4000..5000 {
        let mut read = rig.read(n * PAGE, PAGE);
        assert_eq!(rig.iterate(&mut read), None);
        assert!(rig.in_flight_bytes() > 0, "read {n} waits for a frame, and none will come");
        rig.complete_all();
        assert_eq!(rig.iterate(&mut read), Some(4096));
    }
}
