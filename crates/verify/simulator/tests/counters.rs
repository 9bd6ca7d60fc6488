//! Claims on the counters: no superfluous kick, no page read twice, few retries, and each operation
//! ended once.

use nowait_cache::Cache;
use nowait_sim::{Config, Model, Prng, SimDevice};
use nowait_simulator::medium::prepare;
use nowait_simulator::{Canary, Executor, Op, Profile, Scenario, run};

const PAGE: u64 = 4096;

fn device(seed: u64, model: Model, size: u64) -> SimDevice {
    let device = SimDevice::new(&Config { model, ..Config::new(seed) });
    prepare(&device, size);
    device
}

/// There are more readers than wait queues: readers share queues, but not kicks.
#[test]
fn readers_of_different_pages_never_kick_each_other() {
    for seed in 0..50 {
        let readers = 128;
        let device = device(seed, Model::any_order(), 2 * readers * PAGE);
        let cache = Cache::with_frames(256);
        let mut executor = Executor::new(&device, &cache, 2 * readers * PAGE, 4096, seed);
        for reader in 0..readers {
            executor.submit(&Op::Read { offset: 2 * reader * PAGE, len: 100, pieces: 1 });
        }
        executor.drain().unwrap();
        let (counts, waits) = (executor.counts(), cache.wait_counts());
        assert_eq!((counts.iterations, counts.ended), (2 * readers, readers), "seed {seed}");
        assert_eq!((counts.kicks, counts.redundant), (readers, 0), "seed {seed}");
        assert_eq!((waits.armed, waits.kicked), (readers, readers), "seed {seed}");
    }
}

/// Two reads need the same two uncached pages, whose bios end in any order.
#[test]
fn two_readers_of_two_pages_have_no_retry_in_vain() {
    for seed in 0..500 {
        let device = device(seed, Model::any_order(), 64 * PAGE);
        let cache = Cache::with_frames(64);
        let mut executor = Executor::new(&device, &cache, 64 * PAGE, 4096, seed);
        // The page between the two is cached first, so the reads need two bios.
        executor.submit(&Op::Read { offset: PAGE, len: 1, pieces: 1 });
        executor.drain().unwrap();
        let before = executor.counts().iterations;
        for _ in 0..2 {
            executor.submit(&Op::Read { offset: 0, len: 3 * PAGE as usize, pieces: 1 });
        }
        executor.drain().unwrap();
        let counts = executor.counts();
        // One iteration, then one for each page that was not cached yet when the read reached it.
        assert!((counts.iterations - before) <= 2 * 3, "seed {seed}: {counts:?}");
        assert_eq!(counts.redundant, 0, "seed {seed}");
        assert_eq!(cache.wait_counts().armed, cache.wait_counts().kicked);
        // Each iteration except an operation's first follows a kick by a page that it waited for.
        assert_eq!(counts.iterations, 3 + cache.wait_counts().kicked, "seed {seed}");
    }
}

#[test]
fn concurrent_misses_read_a_page_once() {
    for seed in 0..50 {
        let device = device(seed, Model::any_order(), 64 * PAGE);
        let cache = Cache::with_frames(64);
        let mut executor = Executor::new(&device, &cache, 64 * PAGE, 4096, seed);
        for reader in 0..8 {
            executor.submit(&Op::Read { offset: reader * PAGE, len: 65_536, pieces: 1 });
        }
        executor.drain().unwrap();
        assert_eq!(cache.io_counts().pages_read, 16 + 7, "seed {seed}");
    }
}

#[test]
fn an_uncached_read_of_64_kib_has_one_retry() {
    let (size, count) = (16 << 20, 4_000);
    for model in [Model::any_order(), Model::flash(), Model::disk()] {
        let device = device(1, model, size);
        let cache = Cache::with_frames(2048);
        let mut executor = Executor::new(&device, &cache, size, 4096, 1);
        let mut prng = Prng::new(2);
        for _ in 0..count {
            while executor.in_flight() >= 32 {
                executor.step().unwrap();
            }
            let offset = prng.below(size / 65_536) * 65_536;
            executor.submit(&Op::Read { offset, len: 65_536, pieces: 1 });
        }
        executor.drain().unwrap();
        let counts = executor.counts();
        let retries = counts.iterations - counts.ended;
        // A read of uncached pages sends one bio here, so the bios count the uncached reads.
        assert!(counts.bios > count / 3, "{counts:?}");
        let per_read = retries as f64 / counts.bios as f64;
        println!("{per_read:.3} retries for each of {} uncached reads", counts.bios);
        assert!(per_read <= 1.1, "{per_read} retries for an uncached read: {counts:?}");
        assert_eq!(counts.redundant, 0, "{counts:?}");
    }
}

#[test]
fn what_was_accepted_ends_once_also_when_it_is_dropped() {
    let mut dropped = 0;
    for seed in 0..200 {
        for profile in [Profile::Exact, Profile::Faulty] {
            let mut scenario = Scenario::draw(seed, 300, profile);
            scenario.setup.in_flight_max = 16;
            let mut prng = Prng::new(seed);
            let cancel = |op| [op, Op::Cancel { nth: prng.index(16) }];
            scenario.ops = scenario.ops.into_iter().flat_map(cancel).collect();
            match run::run(&scenario) {
                // At its end, the run compares accepted and ended operations, and bios.
                Ok(report) => dropped += report.counts.dropped,
                Err(failure) => panic!("{failure}"),
            }
        }
    }
    assert!(dropped > 20_000, "only {dropped} were dropped");
}

#[test]
fn one_seed_is_one_run() {
    for (seed, profile) in (0..20).zip([Profile::Exact, Profile::Faulty].into_iter().cycle()) {
        let scenario = Scenario::draw(seed, 500, profile);
        let [a, b] = [(), ()].map(|()| run::run(&scenario).unwrap());
        assert_eq!((a.trace_hash, a.counts), (b.trace_hash, b.counts), "seed {seed}");
    }
}

fn found(canary: Canary) -> Vec<String> {
    let fails = |seed| {
        let mut scenario = Scenario::draw(seed, 500, Profile::Exact);
        scenario.setup.canary = Some(canary);
        run::run(&scenario).err()
    };
    (0..60).filter_map(fails).map(|failure| failure.message).collect()
}

#[test]
fn canary_a_direct_write_below_cached_pages_is_found_out() {
    let found = found(Canary::KeepPages);
    assert!(found.len() > 10, "found {} of 60", found.len());
}

/// The cache was reading the page when the write began, or read it ahead during the write.
#[test]
fn canary_a_direct_write_that_does_not_wait_for_readahead_is_found_out() {
    let fails = |seed: &u64| {
        let mut scenario = Scenario::draw(*seed, 1_000, Profile::Exact);
        scenario.setup.readahead_pages = 32;
        assert!(run::run(&scenario).is_ok(), "seed {seed}, without the mistake");
        scenario.setup.canary = Some(Canary::SkipLocked);
        run::run(&scenario).is_err()
    };
    let count = (0..100).filter(fails).count();
    assert!(count > 5, "found {count} of 100");
}

#[test]
fn canary_a_missing_order_is_found_out() {
    let found = found(Canary::NoOrder);
    assert!(found.len() > 15, "found {} of 60", found.len());
}

#[test]
fn canary_a_lost_kick_is_found_out() {
    let found = found(Canary::LoseKicks);
    let hangs = found.iter().filter(|message| message.starts_with("hangs")).count();
    assert!(hangs > 40, "found {hangs} of 60");
}
