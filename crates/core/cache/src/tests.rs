//! Operations over a device in memory, compared with an array of bytes.

mod dirty;
mod executor;
mod sick;
mod threads;

use crate::{Change, FRAME_BYTES, SyncLevel};
use core::cell::Cell;
use executor::{Do, Random, Rig, Task};
use nowait_block::BioOp;
use nowait_block::backends::error::{Error, Fault, When};
use nowait_block::backends::mem::Mem;
use nowait_retry::Step;
use nowait_sys::Errno;

std::thread_local! {
    /// After the release of so many folios, the end of an I/O panics, once.
    static PANICS_AT: Cell<Option<usize>> = const { Cell::new(None) };
}

pub(crate) fn inject(released: usize) {
    if PANICS_AT.get() == Some(released) {
        PANICS_AT.set(None);
        panic!("injected");
    }
}

const DEVICE: usize = if cfg!(miri) { 1 << 20 } else { 4 << 20 };
const DEPTH: usize = 1;
const LARGE: u64 = if cfg!(miri) { 20_000 } else { 200_000 };

fn patterned(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 + at % 251) as u8).collect()
}

fn rig(contents: &[u8], frames: u32, seed: u64) -> Rig<Mem> {
    let mut rig = Rig::new(Mem::new(DEVICE, DEPTH, seed), frames, 0, seed);
    let bytes = contents.to_vec();
    rig.run(vec![Do::Write { offset: 0, bytes, durable: Some(SyncLevel::All) }]);
    rig.file.mapping().invalidate(0, u64::MAX).unwrap();
    rig
}

fn read(offset: u64, len: usize) -> Do {
    Do::Read { offset, len }
}

fn write(offset: u64, bytes: Vec<u8>) -> Do {
    Do::Write { offset, bytes, durable: None }
}

fn ok(tasks: &[Task]) {
    for task in tasks {
        assert!(task.result.unwrap().is_ok(), "{:?}: {:?}", task.what, task.result);
    }
}

/// The ranges do not overlap, so each read returns the bytes from before the batch.
fn disjoint_batch(random: &mut Random, size: u64) -> Vec<Do> {
    let mut at = random.below(size / 2 + 1);
    let mut list = Vec::new();
    for _ in 0..=random.below(8) {
        let len = match random.below(4) {
            0 => random.below(600),
            1 => 4096,
            2 => random.below(20_000),
            _ => random.below(LARGE),
        } as usize;
        match random.below(5) {
            0 | 1 if at < size => list.push(read(at, len.min((size - at) as usize))),
            4 => list.push(Do::Sync(SyncLevel::Data)),
            draw => {
                let fill = random.below(256) as u8;
                let bytes = (0..len).map(|at| fill ^ (at / 97) as u8).collect();
                let durable = (draw == 3).then_some(SyncLevel::Data);
                list.push(Do::Write { offset: at, bytes, durable });
            }
        }
        at += len as u64 + random.below(3) * random.below(9000);
        if at + LARGE > DEVICE as u64 / 4 {
            break;
        }
    }
    list
}

fn check_and_apply(model: &mut Vec<u8>, tasks: &[Task], seed: u64) {
    ok(tasks);
    for task in tasks {
        if let Do::Read { offset, len } = task.what {
            let expected = &model[offset as usize..][..len];
            assert!(task.bytes() == expected, "seed {seed}: {:?}", task.what);
        }
    }
    for task in tasks {
        if let Do::Write { offset, bytes, .. } = &task.what {
            let end = *offset as usize + bytes.len();
            if !bytes.is_empty() && model.len() < end {
                model.resize(end, 0);
            }
            model[*offset as usize..end.min(*offset as usize + bytes.len())].copy_from_slice(bytes);
        }
    }
}

fn seeds() -> u64 {
    if cfg!(miri) { 1 } else { 24 }
}

#[test]
fn random_operations_agree_with_an_array_of_bytes() {
    for seed in 1..=seeds() {
        let mut model = patterned(10_000 + 777 * seed as usize);
        // Some of these caches are smaller than the file, and than some requests.
        let frames = [8, 33, 64, 300][seed as usize % 4];
        let mut rig = rig(&model, frames, seed);
        rig.one_plug = seed % 2 == 0;
        for round in 0..if cfg!(miri) { 2 } else { 12 } {
            let list = disjoint_batch(&mut rig.random, model.len() as u64);
            let tasks = rig.run(list);
            check_and_apply(&mut model, &tasks, seed);
            assert_eq!(rig.file.size(), model.len() as u64);
            if round % 4 == 3 {
                ok(&rig.run(vec![Do::Sync(SyncLevel::All)]));
                let device = rig.device.contents();
                assert!(device[..model.len()] == model, "seed {seed}: synced bytes");
                let longer = device[model.len()..].iter().any(|byte| *byte != 0);
                assert!(!longer, "seed {seed}: the file is longer than its size");
            }
            if rig.random.below(4) == 0 {
                rig.settle();
                let size = rig.random.below(model.len() as u64 + 1);
                cut(&mut rig, &mut model, size);
            }
        }
        rig.settle();
        let free = rig.cache.frames().free_frames();
        drop(rig.file);
        assert_eq!(rig.cache.frames().free_frames(), u64::from(frames), "had {free} before");
    }
}

/// A bio that writes zeroes takes the place of ftruncate(2).
fn cut(rig: &mut Rig<Mem>, model: &mut Vec<u8>, size: u64) {
    let mut change = Change::cut(&rig.file, size);
    let at_once = change.iterate(&mut Vec::new(), &|| unreachable!("nothing is in flight"));
    assert_eq!(at_once, Step::Done(Ok(0)));
    rig.zero_device(size, model.len() as u64);
    change.finish(size);
    model.truncate(size as usize);
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn concurrent_misses_read_each_page_once() {
    let contents = patterned(1 << 20);
    let mut rig = rig(&contents, 512, 5);
    let before = rig.counts().pages_read;
    let tasks = rig.run((0..16).map(|_| read(128 << 10, 64 << 10)).collect());
    ok(&tasks);
    assert_eq!(rig.counts().pages_read - before, 16);
    assert!(tasks.iter().all(|task| task.bytes() == &contents[128 << 10..][..64 << 10]));
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn an_uncached_read_waits_once() {
    let contents = patterned(3 << 20);
    let mut rig = rig(&contents, 1024, 9);
    let (mut iterations, mut reads) = (0, 0);
    for _ in 0..40 {
        rig.file.mapping().invalidate(0, u64::MAX).unwrap();
        // The reads are not aligned, so most of them need several folios.
        let offsets: Vec<u64> = (0..8).map(|_| rig.random.below((3 << 20) - 65_536)).collect();
        let apart: Vec<Do> = offsets.iter().map(|at| read(*at, 64 << 10)).collect();
        for what in apart {
            let tasks = rig.run(vec![what]);
            ok(&tasks);
            (iterations, reads) = (iterations + tasks[0].iterations, reads + 1);
        }
    }
    let retries = f64::from(iterations - reads) / f64::from(reads);
    assert!(retries <= 1.1, "{retries} retries a read");
    let counts = rig.cache.wait_counts();
    assert_eq!(counts.armed, counts.kicked);
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn a_hit_is_over_in_one_iteration_and_reads_nothing() {
    let contents = patterned(256 << 10);
    let mut rig = rig(&contents, 512, 3);
    ok(&rig.run(vec![read(0, 256 << 10)]));
    let before = rig.counts();
    let tasks = rig.run(vec![read(1234, 100_000), read(200_000, 4096)]);
    assert!(tasks.iter().all(|task| task.iterations == 1));
    assert_eq!(rig.counts(), before);
    assert_eq!(tasks[0].bytes(), &contents[1234..][..100_000]);
}

#[test]
fn an_attempt_stops_at_the_first_missing_page_and_is_resumed_there() {
    let contents = patterned(64 << 10);
    let mut rig = rig(&contents, 512, 3);
    ok(&rig.run(vec![read(0, 20_000)]));
    assert_eq!(rig.attempt(100, 50_000), (5 * FRAME_BYTES - 100, 0), "one iteration, then a bio");
    rig.settle();
    assert_eq!(rig.attempt(100, 50_000), (50_000, 50_000));
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn only_the_edges_of_a_write_are_read_and_whole_or_new_pages_are_not() {
    let contents = patterned(256 << 10);
    let mut rig = rig(&contents, 512, 3);
    let before = rig.counts().pages_read;
    ok(&rig.run(vec![write(4096, vec![1; 8192])]));
    ok(&rig.run(vec![write(300 << 10, vec![2; 100])]));
    assert_eq!(rig.counts().pages_read, before, "covered, or behind the end");
    ok(&rig.run(vec![write((64 << 10) + 100, vec![3; 32 << 10])]));
    assert_eq!(rig.counts().pages_read, before + 2, "the two edges");
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn synchronized_writes_issue_everything_at_once_and_copy_once() {
    let contents = patterned(2 << 20);
    let mut rig = rig(&contents, 2048, 3);
    (rig.in_flight_max, rig.slow_device) = (0, true);
    let list = (0..16u64).map(|at| Do::Write {
        offset: at * (128 << 10),
        bytes: vec![at as u8; 64 << 10],
        durable: Some(SyncLevel::Data),
    });
    let tasks = rig.run(list.collect());
    ok(&tasks);
    assert_eq!(rig.in_flight_max, 16, "nothing was held across a wait");
    assert_eq!(rig.cache.dirty_frames(), 0);
    for at in 0..16 {
        let written = &rig.device.contents()[at * (128 << 10)..][..64 << 10];
        assert!(written.iter().all(|byte| *byte == at as u8));
    }
}

/// The bytes of a page show its index.
fn durable_writes(pages: usize, at: impl IntoIterator<Item = usize>) -> Vec<Do> {
    let one = |at| {
        let bytes = (0..pages * FRAME_BYTES).map(|byte| (at + byte / FRAME_BYTES) as u8);
        let (offset, bytes) = ((at * FRAME_BYTES) as u64, bytes.collect());
        Do::Write { offset, bytes, durable: Some(SyncLevel::Data) }
    };
    at.into_iter().map(one).collect()
}

#[test]
fn synchronized_writes_of_a_submission_share_a_bio_where_they_adjoin() {
    let mut rig = rig(&patterned(64 << 10), 64, 3);
    let flushes = rig.counts().flushes;
    let (mut tasks, bytes) = rig.submit(durable_writes(1, [0, 1, 2, 5, 6, 4]));
    assert_eq!(bytes, [3, 2, 1].map(|pages| pages * FRAME_BYTES));
    rig.finish(&mut tasks);
    ok(&tasks);
    assert_eq!((rig.counts().flushes, rig.cache.dirty_frames()), (flushes, 0));
    for page in [0, 1, 2, 4, 5, 6] {
        let written = &rig.device.contents()[page * FRAME_BYTES..][..FRAME_BYTES];
        assert!(written.iter().all(|byte| *byte == page as u8), "page {page}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn a_bio_of_several_writes_is_no_longer_than_others() {
    let mut rig = rig(&patterned(2 << 20), 1024, 3);
    let (mut tasks, bytes) = rig.submit(durable_writes(48, (0..9).map(|at| at * 48)));
    assert_eq!(bytes, [240, 192].map(|pages| pages * FRAME_BYTES), "256 pages at most");
    rig.finish(&mut tasks);
    ok(&tasks);
}

#[test]
fn all_writes_that_share_a_bio_hear_that_it_failed() {
    let rules = vec![(When::Nth(0), Fault::Fail(Errno::NOSPC))];
    let mut rig = Rig::new(Error::new(Mem::new(DEVICE, DEPTH, 1), rules), 64, 0, 1);
    let (mut tasks, bytes) = rig.submit(durable_writes(1, 0..3));
    assert_eq!(bytes, [3 * FRAME_BYTES]);
    rig.finish(&mut tasks);
    assert!(tasks.iter().all(|task| task.result == Some(Err(Errno::NOSPC))));
    let again = rig.run(vec![Do::Sync(SyncLevel::Data)]);
    ok(&again);
    assert_eq!(rig.cache.dirty_frames(), 0);
}

#[test]
fn one_flush_serves_all_syncs_that_wait_for_it() {
    let mut rig = rig(&patterned(64 << 10), 512, 3);
    rig.slow_device = true;
    let before = rig.counts().flushes;
    ok(&rig.run((0..32).map(|_| Do::Sync(SyncLevel::All)).collect()));
    let flushes = rig.counts().flushes - before;
    assert_eq!(flushes, 2, "one for the first, one for the 31 that came while it ran");
}

#[test]
fn a_failed_read_is_an_error_once_and_then_tried_again() {
    let device =
        Error::new(Mem::new(DEVICE, DEPTH, 1), vec![(When::Nth(0), Fault::Fail(Errno::IO))]);
    let mut rig = Rig::new(device, 64, 64 << 10, 1);
    let tasks = rig.run(vec![read(0, 64 << 10)]);
    assert_eq!(tasks[0].result, Some(Err(Errno::IO)));
    let tasks = rig.run(vec![read(0, 64 << 10)]);
    assert_eq!(tasks[0].result, Some(Ok(64 << 10)));
}

/// The second sync succeeds or, if it reports the error again, a third one after `forgive`
/// succeeds.
#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn a_sync_reports_every_failed_request() {
    for n in 0.. {
        let rules = vec![(When::Nth(n), Fault::Fail(Errno::NOSPC))];
        let device = Error::new(Mem::new(DEVICE, DEPTH, n), rules);
        let mut rig = Rig::new(device, 256, 0, n + 1);
        let bytes = patterned(150_000);
        // Gaps between the ranges give the sync several bios, and the last range has a tail.
        for at in [0, 50_000, 100_000] {
            ok(&rig.run(vec![write(at, bytes[at as usize..][..40_000].to_vec())]));
        }
        let first = rig.run(vec![Do::Sync(SyncLevel::All)])[0].result.unwrap();
        if rig.device.fired() == 0 {
            assert_eq!(first, Ok(0));
            assert!(n >= 3, "the sweep saw {n} requests");
            return;
        }
        assert_eq!(first, Err(Errno::NOSPC), "request {n} failed in silence");
        let second = rig.run(vec![Do::Sync(SyncLevel::All)])[0].result.unwrap();
        if second.is_err() {
            rig.file.forgive();
            ok(&rig.run(vec![Do::Sync(SyncLevel::All)]));
        }
        let device = rig.device.inner().contents();
        assert!(device[50_000..90_000] == bytes[50_000..90_000], "request {n}: the bytes");
        assert_eq!(rig.cache.dirty_frames(), 0);
    }
}

#[test]
fn short_transfers_go_on_where_they_stopped() {
    let rules = vec![(When::EveryNth(2), Fault::Short(3 * FRAME_BYTES + 5))];
    let device = Error::new(Mem::new(DEVICE, DEPTH, 1), rules);
    let mut rig = Rig::new(device, 256, 0, 1);
    let bytes = patterned(100_001);
    ok(&rig.run(vec![write(0, bytes.clone()), Do::Sync(SyncLevel::All)]));
    ok(&rig.run(vec![Do::Sync(SyncLevel::All)]));
    rig.file.mapping().invalidate(0, u64::MAX).unwrap();
    let tasks = rig.run(vec![read(0, 200_000)]);
    assert_eq!(tasks[0].bytes(), bytes);
}

#[test]
fn a_transfer_that_never_moves_fails() {
    let device =
        Error::new(Mem::new(DEVICE, DEPTH, 1), vec![(When::Op(BioOp::Read), Fault::Short(100))]);
    let mut rig = Rig::new(device, 64, 64 << 10, 1);
    assert_eq!(rig.run(vec![read(0, 4096)])[0].result, Some(Err(Errno::IO)));
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn small_writes_are_written_back_in_large_runs_once_many_pages_are_dirty() {
    let mut rig = Rig::new(Mem::new(DEVICE, DEPTH, 1), 256, 0, 1);
    rig.slow_device = true;
    for at in 0..100u64 {
        ok(&rig.run(vec![write(at * 4096, vec![at as u8; 4096])]));
    }
    let counts = rig.counts();
    assert_eq!(counts.pages_written, 0, "the device is slow");
    assert_eq!(rig.in_flight_max, 1, "64 pages at once, a quarter of the pool, not one by one");
    rig.settle();
    assert!(rig.counts().pages_written >= 64);
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn a_write_larger_than_the_pool_waits_for_its_own_writeback() {
    let mut rig = Rig::new(Mem::new(DEVICE, DEPTH, 1), 64, 0, 1);
    let bytes = patterned(2 << 20);
    let tasks = rig.run(vec![write(0, bytes.clone())]);
    ok(&tasks);
    assert!(tasks[0].iterations > 1);
    ok(&rig.run(vec![Do::Sync(SyncLevel::Data)]));
    assert!(rig.device.contents()[..bytes.len()] == bytes);
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn a_full_device_ends_a_write_that_waits_for_it() {
    let rules = vec![(When::Op(BioOp::Write), Fault::Fail(Errno::NOSPC))];
    let mut rig = Rig::new(Error::new(Mem::new(DEVICE, DEPTH, 1), rules), 64, 0, 1);
    let bytes = vec![7; 1 << 20];
    let first = rig.run(vec![write(0, bytes.clone())])[0].result.unwrap();
    assert!(first.is_ok_and(|bytes| bytes < 1 << 20), "what fitted: {first:?}");
    let end = u64::from(first.unwrap());
    assert_eq!(rig.run(vec![write(end, bytes)])[0].result, Some(Err(Errno::NOSPC)));
    assert_eq!(rig.run(vec![Do::Sync(SyncLevel::Data)])[0].result, Some(Err(Errno::NOSPC)));
    rig.settle();
}

#[test]
fn a_panic_in_the_end_of_an_io_releases_its_pages_with_an_error() {
    let bytes = patterned(LARGE as usize);
    let other: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    let mut fired = [0, 0];
    for at in 0..4 {
        let mut rig = rig(&bytes, 256, 7);
        PANICS_AT.set(Some(at));
        let tasks = rig.run(vec![read(0, bytes.len())]);
        match tasks[0].result.unwrap() {
            // The read may start a page again whose fill failed before the read waited for it.
            Ok(len) => assert!(tasks[0].bytes() == &bytes[..len as usize]),
            Err(errno) => assert_eq!((errno, rig.panics), (Errno::IO, 1)),
        }
        fired[0] += core::mem::take(&mut rig.panics);
        let tasks = rig.run(vec![read(0, bytes.len())]);
        assert!(tasks[0].bytes() == bytes, "read again");
        ok(&rig.run(vec![write(0, other.clone())]));
        PANICS_AT.set(Some(at));
        let tasks = rig.run(vec![Do::Sync(SyncLevel::Data)]);
        let expected = if rig.panics > 0 { Err(Errno::IO) } else { Ok(0) };
        assert_eq!(tasks[0].result, Some(expected));
        fired[1] += core::mem::take(&mut rig.panics);
        PANICS_AT.set(None);
        ok(&rig.run(vec![Do::Sync(SyncLevel::Data)]));
        rig.file.mapping().invalidate(0, u64::MAX).unwrap();
        assert!(rig.run(vec![read(0, bytes.len())])[0].bytes() == other, "written again");
        assert!(!rig.cache.has_ios());
    }
    assert!(fired[0] > 1 && fired[1] > 1, "{fired:?} of I/Os of several folios");
}
