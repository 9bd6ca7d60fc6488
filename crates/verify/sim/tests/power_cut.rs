//! Power cuts at random and at every request; the oracle checks the remains.

mod support;

use nowait_sim::{
    Config, Cut, Faults, Lies, Model, Prng, SimDevice,
    oracle::{Violation, Wrong},
};
use support::{FD, User};

fn config(seed: u64, prng: &mut Prng) -> Config {
    let models = [
        Model::any_order(),
        Model::constant(1_000),
        Model::constant(0),
        Model::flash(),
        Model::disk(),
    ];
    Config {
        model: models[prng.index(models.len())].clone(),
        sector_bytes: if prng.chance(900_000) { 512 } else { 4096 },
        faults: Faults::swarm(prng),
        ..Config::new(seed)
    }
}

type Found = (Violation, String);

fn reboot(user: &User, config: &Config, prng: &mut Prng) -> Result<(SimDevice, Vec<u8>), Found> {
    let mut last = None;
    for _ in 0..3 {
        let device = user.device.reboot(config, prng);
        let left = device.contents(FD).unwrap();
        let verdict = user.oracle.judge(FD, &left);
        verdict.map_err(|violation| (violation, user.device.trace().to_string()))?;
        last = Some((device, left));
    }
    Ok(last.expect("there was more than one"))
}

fn run(config: &Config, prng: &mut Prng) -> Result<(), Found> {
    let mut user = User::new(config);
    for _ in 0..2 {
        let (steps, n) = (40 + prng.below(40), prng.below(50));
        let cuts = [Cut::Queued(n), Cut::Completed(n)];
        if prng.chance(700_000) {
            user.device.cut_at(cuts[prng.index(2)]);
        }
        (0..steps).for_each(|_| user.step());
        // Requests may be in flight, completed and not reaped, or not even committed.
        user.device.cut_power();
        user.drain();
        let (device, left) = reboot(&user, config, prng)?;
        user.go_on(device, &left);
    }
    Ok(())
}

fn run_seed(seed: u64, lies: Option<Lies>) -> Result<(), Found> {
    let mut prng = Prng::new(seed);
    let mut config = config(seed, &mut prng);
    config.faults.lies = lies;
    run(&config, &mut prng)
}

#[test]
fn honest_devices_keep_their_promises() {
    for seed in 0..1_000 {
        if let Err((violation, trace)) = run_seed(seed, None) {
            panic!("seed {seed}: {violation}\n{trace}");
        }
    }
}

#[test]
fn promises_hold_at_a_cut_before_and_after_every_request() {
    for seed in 0..4 {
        let config = Config { faults: Faults::volatile_cache(), ..Config::new(seed) };
        let mut requests = u64::MAX;
        let mut n = 0;
        while n < requests {
            for cut in [Cut::Queued(n), Cut::Completed(n)] {
                let mut user = User::new(&config);
                user.device.cut_at(cut);
                (0..60).for_each(|_| user.step());
                user.drain();
                requests = user.device.requests();
                if let Err((violation, trace)) = reboot(&user, &config, &mut Prng::new(n)) {
                    panic!("seed {seed}, {cut:?}: {violation}\n{trace}");
                }
            }
            n += 1;
        }
        assert!(n > 30, "the scenario has only {n} requests");
    }
}

#[test]
fn canary_a_device_that_ignores_flushes_is_found_out() {
    let faults = Faults { lies: Some(Lies::IgnoreFlush), ..Faults::volatile_cache() };
    let (mut contents, mut sizes) = (0, 0);
    for seed in 0..100 {
        let config = Config { faults: faults.clone(), ..Config::new(seed) };
        match run(&config, &mut Prng::new(seed)).map_err(|(violation, _)| violation.what) {
            Err(Wrong::Content(_)) => contents += 1,
            Err(Wrong::Size(..)) => sizes += 1,
            Ok(()) => {}
        }
    }
    assert!(contents > 20 && sizes > 10, "found {contents} by contents, {sizes} by sizes");
    assert!(contents + sizes > 90, "found {contents} by contents, {sizes} by sizes");
}

#[test]
fn canary_a_liar_is_found_out_among_other_faults() {
    let found = (0..200).filter(|seed| run_seed(*seed, Some(Lies::IgnoreFlush)).is_err()).count();
    // Some of the random devices lose nothing in a power cut, flushed or not.
    assert!(found > 60, "found {found} of 200");
}
