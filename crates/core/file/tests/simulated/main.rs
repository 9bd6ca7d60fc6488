//! The whole engine on a simulated device. A seed decides which request, turn or completion comes
//! next, and how the device behaves. One thread does everything and the clock is virtual, so a seed
//! gives the same run every time.

mod machine;
mod model;
mod run;

use machine::Mistake;
use nowait_cache::mistake::{self, Mistake as InCache};
use run::{Counts, Run};
use std::panic::catch_unwind;

/// With `NOWAIT_FULL`, twenty times as many seeds run.
const SEEDS: u64 = 1000;

/// `SIM_COMMIT`, the hash of a commit, adds a seed; with `SIM_SEED` only that seed runs.
fn seeds() -> Vec<u64> {
    let variable = |name| std::env::var(name).ok();
    if let Some(seed) = variable("SIM_SEED") {
        return vec![seed.parse().expect("SIM_SEED is a number")];
    }
    let hash = |text: String| u64::from_str_radix(text.get(..16)?, 16).ok();
    let seeds = if variable("NOWAIT_FULL").is_some() { 20 * SEEDS } else { SEEDS };
    (0..seeds).chain(variable("SIM_COMMIT").and_then(hash)).collect()
}

#[test]
fn every_request_ends_once_and_those_that_overlap_in_order_whatever_the_device_does() {
    let (seeds, mut counts) = (seeds(), Counts::default());
    for &seed in &seeds {
        let mut run = Run::new(seed, None);
        if let Err(what) = run.run() {
            panic!("seed {seed}: {what}\n{run:?}");
        }
        counts.add(&run.counts());
    }
    assert!(seeds.len() == 1 || counts.is_everything(), "something never happens: {counts:?}");
}

#[test]
fn a_seed_is_the_same_run_again() {
    for seed in 0..20 {
        let trace = || {
            let mut run = Run::new(seed, None);
            run.run().unwrap();
            run.hash()
        };
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

fn found(machine: Option<Mistake>, cache: Option<InCache>) -> Option<u64> {
    mistake::make(cache);
    // A call that hangs panics, after too many turns.
    let run = |seed| catch_unwind(|| Run::new(seed, machine).run());
    let found = (0..SEEDS).find(|seed| !matches!(run(*seed), Ok(Ok(()))));
    mistake::make(None);
    println!("{machine:?} {cache:?}: found by seed {found:?}");
    found
}

#[test]
fn canary_a_lost_completion_is_found_out() {
    assert!(found(Some(Mistake::LosesCompletions(10)), None).is_some());
}

#[test]
fn canary_a_write_that_is_not_carried_out_is_found_out() {
    assert!(found(Some(Mistake::SkipsWrites(10)), None).is_some());
}

/// Only a growing file, another process or a failing device shows the other mistakes.
#[test]
fn canary_mistakes_of_the_page_cache_are_found_out() {
    let elsewhere = [InCache::KeepTail, InCache::DirtyAround, InCache::ShareWithSick];
    for mistake in InCache::ALL.into_iter().filter(|it| !elsewhere.contains(it)) {
        assert!(found(None, Some(mistake)).is_some(), "{mistake:?}");
    }
}
