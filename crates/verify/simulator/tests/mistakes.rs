//! Deliberate mistakes of the cache itself: at least one of the seeds must find each of them.

use nowait_cache::mistake::Mistake;
use nowait_simulator::{Profile, Scenario, run};

fn fails(seed: u64, profile: Profile, mistake: Option<Mistake>) -> bool {
    let mut scenario = Scenario::draw(seed, 300, profile);
    scenario.setup.mistake = mistake;
    run::run(&scenario).is_err()
}

#[test]
fn canary_every_mistake_of_the_cache_is_found_out() {
    // `neighbours.rs` tests ShareWithSick, which needs several devices.
    for mistake in Mistake::ALL.into_iter().filter(|it| *it != Mistake::ShareWithSick) {
        let profile = match mistake {
            Mistake::DirtyAround => Profile::Rival,
            _ => Profile::Exact,
        };
        let found = (0..100).find(|seed| fails(*seed, profile, Some(mistake)));
        let seed = found.unwrap_or_else(|| panic!("{mistake:?} is not found"));
        assert!(!fails(seed, profile, None), "seed {seed}, without the mistake");
    }
}

#[test]
fn canary_a_sync_of_a_range_that_stops_short_is_found_by_power_cuts() {
    let fails = |seed: u64, mistake| {
        let mut scenario = Scenario::draw(seed, 40, Profile::Power);
        scenario.setup.mistake = mistake;
        run::check(&scenario).is_err()
    };
    let found = (0..40).find(|seed| fails(*seed, Some(Mistake::SyncShort)));
    assert!(!fails(found.expect("a seed finds it"), None));
}
