//! The power fails before and after every device request of some scenarios.

mod support;

use nowait_sim::{Faults, Lies};
use nowait_simulator::{Canary, Profile, Scenario, run, scenario::Below};

#[test]
fn what_was_promised_is_there_after_every_power_cut_1() {
    support::run(0..100, 40, Profile::Power);
}

#[test]
fn what_was_promised_is_there_after_every_power_cut_2() {
    support::run(100..200, 40, Profile::Power);
}

#[test]
fn what_was_promised_is_there_although_requests_failed_before_the_power_did() {
    let share = 60_000;
    for seed in 0..40 {
        let mut scenario = Scenario::draw(seed, 40, Profile::Power);
        let Below::Sim(config) = &mut scenario.setup.below else { unreachable!("a device") };
        config.faults = Faults {
            read_error_ppm: share,
            write_error_ppm: share,
            flush_error_ppm: share,
            partial_ppm: 500_000,
            forget_ppm: 500_000,
            ..Faults::volatile_cache()
        };
        if let Err(failure) = run::check(&scenario) {
            panic!("{failure}");
        }
    }
}

fn found(seeds: u64, spoil: impl Fn(&mut Scenario)) -> usize {
    let fails = |seed: &u64| {
        let mut scenario = Scenario::draw(*seed, 40, Profile::Power);
        spoil(&mut scenario);
        run::check(&scenario).is_err()
    };
    (0..seeds).filter(fails).count()
}

#[test]
fn canary_a_device_that_ignores_flushes_is_found_out() {
    let count = found(40, |scenario| {
        let Below::Sim(config) = &mut scenario.setup.below else { unreachable!("a device") };
        config.faults = Faults { lies: Some(Lies::IgnoreFlush), ..Faults::volatile_cache() };
    });
    assert!(count > 20, "found {count} of 40");
}

#[test]
fn canary_a_sync_that_does_not_wait_for_writeback_is_found_out() {
    let count = found(40, |scenario| scenario.setup.canary = Some(Canary::SyncDoesNotWait));
    assert!(count > 10, "found {count} of 40");
}

/// This seed found a bug: a truncation had dropped dirty pages before it cut the file, and a sync
/// in between succeeded. So the cache keeps these pages until the file is shorter.
#[test]
fn a_sync_promises_nothing_that_a_truncation_has_half_removed() {
    support::run(101_971..101_972, 40, Profile::Power);
}
