//! A device that is full or does not answer affects only its own files, by seed.

use nowait_cache::mistake::Mistake;
use nowait_simulator::neighbours::run;

#[test]
fn a_sick_device_costs_its_own_files_only() {
    let seeds = std::env::var("SEEDS").map_or(60, |count| count.parse().expect("SEEDS: a number"));
    for seed in 0..seeds {
        run(seed, None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// With the mistake, data that cannot be written counts against all devices.
#[test]
fn canary_a_share_for_all_is_found_out() {
    let found = (0..20).find(|seed| run(*seed, Some(Mistake::ShareWithSick)).is_err());
    assert!(found.is_some());
}
