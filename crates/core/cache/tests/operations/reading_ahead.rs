//! Readahead, from the first miss of a read to the bios.

use crate::rig::{KIB, MIB, Made, PAGE, Rig};
use nowait_block::BioOp;
use nowait_cache::readahead::Advice;
use nowait_cache::{Cache, OpenFile};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};
use std::task::Wake;

const WINDOW_PAGES: u64 = 128;

fn open() -> Arc<OpenFile> {
    Arc::new(OpenFile::new(WINDOW_PAGES as u32))
}

/// An operation that finds no frame whenever it is kicked.
struct Again {
    cache: Arc<Cache>,
    kicks: AtomicU32,
}

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.kicks.fetch_add(1, Relaxed);
        self.cache.frames().wait_for_room(self.clone().into());
    }
}

/// The file is longer than the file on disk, so readahead zeroes folios at once, without a bio.
#[test]
fn readahead_behind_the_end_of_the_disk_file_kicks_the_operations_that_wait_for_a_frame() {
    let mut rig = Rig::new(4 * MIB, 64 * KIB);
    rig.run_write(MIB, vec![1; 4096]);
    let again = Arc::new(Again { cache: rig.cache.clone(), kicks: AtomicU32::new(0) });
    again.clone().wake();
    let mut plug = Vec::new();
    open().will_need(&rig.file, 128 * KIB..256 * KIB, &mut plug);
    assert!(plug.is_empty() && rig.is_there(128 * KIB / PAGE));
    // At the start, by the pin of the folio that is marked, and when the folios are unlocked.
    assert_eq!(again.kicks.load(Relaxed), 3);
}

/// The trace of the paper on upfront readahead, in which the window shrank to 4 KiB.
#[test]
fn each_streaming_random_read_is_one_bio_and_two_iterations() {
    let (mut rig, open) = (Rig::new(16 * MIB, 8 * MIB), open());
    let place = |n: u64| (n * 79 % 128 * 16 + 3) * PAGE;
    for batch in 0..40 {
        let offsets = [0, 1, 2].map(|n| place(batch * 3 + n));
        let mut reads = offsets.map(|at| rig.read(at, 16 * KIB));
        for read in &mut reads {
            let operation = rig.read(0, 0).operation;
            let plain = core::mem::replace(&mut read.operation, operation);
            read.operation = plain.with_readahead(open.clone(), true);
            assert_eq!(rig.iterate(read), None);
        }
        rig.complete_all();
        for (read, at) in reads.iter_mut().zip(offsets) {
            assert_eq!(rig.iterate(read), Some(16 << 10), "whole, on the first retry");
            rig.check(read, at);
        }
    }
    let expected =
        (0..120).map(|n| Made { op: BioOp::Read, offset: place(n), len: 16 * KIB, flags: 0 });
    assert_eq!(rig.made, expected.collect::<Vec<_>>());
    assert_eq!(rig.pages_read(), (480, 480), "no page twice");
}

#[test]
fn sequential_64k_reads_have_512k_in_flight_when_they_wait() {
    let (mut rig, open) = (Rig::new(32 * MIB, 16 * MIB), open());
    for n in 0..256 {
        let (offset, mut read) = (n * 64 * KIB, rig.read(n * 64 * KIB, 64 * KIB));
        read.operation = read.operation.with_readahead(open.clone(), false);
        while rig.iterate(&mut read).is_none() {
            let in_flight = rig.in_flight_bytes();
            let near_the_end = offset + 2 * MIB > 16 * MIB;
            assert!(n < 8 || near_the_end || in_flight >= 512 * KIB, "{n}: {in_flight}");
            while read.kicks.count() < read.iterations {
                rig.complete_oldest();
            }
        }
        rig.check(&read, offset);
    }
    rig.complete_all();
    assert!(rig.made.iter().all(|made| made.len >= 64 * KIB), "{:?}", rig.made);
    assert_eq!(rig.pages_read(), (4096, 4096), "all, and no page twice");
    let small = (0..4096).filter(|index| {
        let pin = rig.file.mapping().look_up(*index).unwrap();
        pin.folio().pages() < 16
    });
    assert_eq!(small.count(), 0, "windows end on borders of large folios");
}

#[test]
fn random_4k_reads_read_4k() {
    let (mut rig, open) = (Rig::new(16 * MIB, 8 * MIB), open());
    // No read begins at page 0: a read there begins a stream.
    for n in 1..=500 {
        rig.run(Some(&open), n * 787 % 2048 * PAGE, PAGE);
    }
    assert!(rig.made.iter().all(|made| made.len == PAGE));
    assert_eq!(rig.pages_read(), (500, 500));
}

#[test]
fn a_request_does_not_wait_for_what_is_read_ahead_of_it() {
    let (mut rig, open) = (Rig::new(16 * MIB, 8 * MIB), open());
    rig.run(Some(&open), 0, 16 * KIB);
    assert_eq!(rig.made[0].len, 16 * KIB, "in a bio of its own");
    assert!(rig.in_flight_bytes() > 0, "the rest is still in flight");
}

#[test]
fn a_stream_through_a_cache_smaller_than_the_file_reads_each_page_once() {
    let (mut rig, open) = (Rig::new(2 * MIB, 16 * MIB), open());
    for n in 0..256 {
        rig.run(Some(&open), n * 64 * KIB, 64 * KIB);
    }
    assert_eq!(rig.pages_read(), (4096, 4096));
    let small = rig.made.iter().filter(|made| made.len < 64 * KIB).count();
    assert_eq!(small, 0, "memory came back in large runs");
}

#[test]
fn will_need_reads_in_windows_and_the_read_hits() {
    let (mut rig, open) = (Rig::new(16 * MIB, 8 * MIB), open());
    let mut plug = Vec::new();
    open.will_need(&rig.file, MIB..2 * MIB + 5, &mut plug);
    rig.queue(plug);
    assert_eq!(rig.made.iter().map(|made| made.len).sum::<u64>(), MIB + PAGE);
    rig.complete_all();
    assert_eq!(rig.run(Some(&open), MIB, MIB), 1, "a hit");
}

#[test]
fn forgotten_pages_go_unless_they_are_dirty_or_partly_covered() {
    let (mut rig, open) = (Rig::new(16 * MIB, 8 * MIB), open());
    open.advise(Advice::Random);
    for at in 0..16 {
        rig.run(Some(&open), at * PAGE, PAGE);
    }
    rig.run_write(5 * PAGE, vec![1; 4096]);
    open.forget(&rig.file, 100..10 * PAGE);
    let there: Vec<u64> = (0..16).filter(|index| rig.is_there(*index)).collect();
    assert_eq!(there, [0, 5, 10, 11, 12, 13, 14, 15]);
}

#[test]
fn reads_without_an_open_file_read_what_they_ask_for() {
    let mut rig = Rig::new(16 * MIB, 8 * MIB);
    for n in 0..16 {
        rig.run(None, n * 64 * KIB, 64 * KIB);
    }
    assert_eq!(rig.pages_read(), (256, 256));
    assert_eq!(rig.in_flight_bytes(), 0);
}
