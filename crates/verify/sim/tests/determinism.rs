//! Two runs of one seed are the same, event for event.

mod support;

use nowait_sim::{Config, Faults, Model, Prng};
use support::{FD, User};

fn run(seed: u64) -> ([u64; 2], u64) {
    let mut prng = Prng::new(seed);
    let faults = Faults::swarm(&mut prng);
    let model = if prng.chance(500_000) { Model::any_order() } else { Model::disk() };
    let config = Config { faults, model, ..Config::new(seed) };
    let mut user = User::new(&config);
    let half = |user: &mut User| {
        (0..100).for_each(|_| user.step());
        user.drain();
        user.device.trace_hash()
    };
    let before = half(&mut user);
    let device = user.device.reboot(&config, &mut prng);
    let left = device.contents(FD).unwrap();
    user.go_on(device, &left);
    let after = half(&mut user);
    ([before, after], user.device.clock().now_ns())
}

#[test]
fn one_seed_is_one_run() {
    let mut hashes: Vec<[u64; 2]> = Vec::new();
    for seed in 0..50 {
        let first = run(seed);
        assert_eq!(first, run(seed), "seed {seed}");
        hashes.push(first.0);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 50, "other seeds are other runs");
}
