//! The seeds that the tests run.

use nowait_simulator::{Profile, Scenario, shrink::explain};
use std::ops::Range;

/// `SIM_SEED` names the only seed to run; a call whose seeds do not begin with 0 then runs none.
/// `SIM_COMMIT`, the hash of a commit, adds a seed to calls whose seeds begin with 0.
pub(crate) fn run(seeds: Range<u64>, count: usize, profile: Profile) {
    let first = seeds.start == 0;
    let only = std::env::var("SIM_SEED").ok().map(|text| text.parse().expect("SIM_SEED: a number"));
    let commit = std::env::var("SIM_COMMIT").ok().filter(|_| first);
    let commit = commit.and_then(|hash| u64::from_str_radix(hash.get(..16)?, 16).ok());
    let all: Vec<u64> = match only {
        Some(seed) if first => vec![seed],
        Some(_) => Vec::new(),
        None => seeds.chain(commit).collect(),
    };
    for seed in all {
        if let Err(text) = explain(&Scenario::draw(seed, count, profile)) {
            panic!("{text}");
        }
    }
}
