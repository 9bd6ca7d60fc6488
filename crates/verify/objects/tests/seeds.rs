//! Images on a store that fails, by seed; and deliberate mistakes, which the tests must find.

use nowait_image_format::mistake::Mistake;
use nowait_objects::losses::{self, Outcome};
use nowait_objects::run::{Report, run};
use nowait_objects::{crowd, damages, removals, stale, world};
use std::collections::BTreeMap;

const ACTIONS: usize = 220;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// `SIM_SEED` names the only seed to run. Otherwise `SEEDS` is the number of seeds, and
/// `SIM_COMMIT`, a commit's hash, adds one.
fn seeds() -> Vec<u64> {
    if let Some(seed) = number("SIM_SEED") {
        return vec![seed];
    }
    let commit = std::env::var("SIM_COMMIT").ok();
    let commit = commit.and_then(|hash| u64::from_str_radix(hash.get(..16)?, 16).ok());
    (0..number("SEEDS").unwrap_or(2_000)).chain(commit).collect()
}

/// Flushed data is never lost or replaced by older data, nothing hangs, and a replaced writer
/// promises nothing and, after a minute, reads nothing.
#[test]
fn an_image_is_a_disk_whatever_its_store_does() {
    let mut sum = Report::default();
    for seed in seeds() {
        let report = run(seed, ACTIONS, None).unwrap_or_else(|what| panic!("{what}"));
        sum.flushes += report.flushes;
        sum.reads += report.reads;
        sum.takeovers += report.takeovers;
        sum.fenced += report.fenced;
        sum.collected += report.collected;
        sum.shrunk += report.shrunk;
        sum.beyond += report.beyond;
        sum.closed += report.closed;
        sum.snapshots += report.snapshots;
        sum.removed += report.removed;
        sum.clones += report.clones;
        sum.strangers += report.strangers;
    }
    println!("{sum:?}");
    let runs = seeds().len() as u64;
    // Each run ends with at least one takeover.
    assert!(sum.takeovers >= runs, "{sum:?}");
    if runs >= 1_000 {
        assert!(
            sum.flushes > 10 * runs
                && sum.reads > 7 * runs
                && sum.fenced > runs / 4
                && sum.collected > runs
                && sum.shrunk > runs * 3 / 4
                && sum.beyond > runs / 5
                && sum.closed > runs / 10
                && sum.snapshots > runs
                && sum.removed > runs / 10
                && sum.clones > runs / 5
                && sum.strangers > runs / 10,
            "{sum:?}"
        );
    }
}

fn find(mistake: Mistake, seed: u64) -> Result<(), String> {
    let with = Some(mistake);
    match mistake {
        Mistake::SendUnproven => world::run(seed, with, stale::program),
        Mistake::NameByPath | Mistake::FlushUnproven => world::run(seed, with, removals::program),
        Mistake::GapIsEnd | Mistake::IgnoreNonce => {
            world::run(seed, with, |world| losses::program(world, &mut BTreeMap::new()))
        }
        Mistake::StarveCollection => world::run(seed, with, crowd::program),
        _ => run(seed, ACTIONS, with).map(drop),
    }
}

#[test]
fn an_image_that_is_removed_takes_no_flush_and_harms_no_later_one() {
    for seed in seeds() {
        world::run(seed, None, removals::program).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn a_writer_that_stood_still_changes_nothing_of_what_the_next_ones_have_left() {
    for seed in seeds() {
        world::run(seed, None, stale::program).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// A loss may stay unnoticed only if nothing shows that the lost object existed.
#[test]
fn a_lost_object_or_an_older_head_is_never_a_wrong_byte() {
    let mut outcomes = BTreeMap::new();
    for seed in seeds() {
        let program = |world: &mut world::World| losses::program(world, &mut outcomes);
        world::run(seed, None, program).unwrap_or_else(|what| panic!("{what}"));
    }
    println!("{outcomes:?}");
    if seeds().len() >= 1_000 {
        use Outcome::{Partly, Refused, Unknowable, Whole};
        for outcome in [Whole, Partly, Refused, Unknowable] {
            assert!(outcomes.get(&outcome).is_some_and(|count| *count > 20), "{outcomes:?}");
        }
    }
}

/// In some runs, a writer opens an image after the damage; in others, writers serve the images
/// already.
#[test]
fn every_damage_of_every_object_is_an_error_or_nothing() {
    let mut names = Vec::new();
    let list = |world: &mut world::World| damages::names(world).map(|it| names = it);
    world::run(0, None, list).unwrap_or_else(|what| panic!("{what}"));
    let mut table = damages::Table::new();
    for when in [damages::When::Before, damages::When::Served] {
        for damage in damages::Damage::ALL {
            for name in &names {
                let program = |world: &mut world::World| {
                    damages::program(world, name, damage, when, &mut table)
                };
                world::run(0, None, program).unwrap_or_else(|what| panic!("{what}"));
            }
        }
    }
    for ((kind, damage, when), outcomes) in &table {
        println!("{kind:4} {when:6?} {damage:5?} {}", damages::Row(outcomes));
    }
    assert!(table.len() == 3 * 2 * damages::Damage::ALL.len() && names.len() > 20, "{names:?}");
    let lost = table.iter().filter(|((_, damage, _), _)| *damage == damages::Damage::Gone);
    assert!(lost.flat_map(|(_, it)| it.keys()).any(|it| *it == damages::Outcome::Refused));
}

#[test]
fn clients_that_flush_at_their_own_times_are_collected_behind() {
    for seed in seeds().into_iter().take(20) {
        world::run(seed, None, crowd::program).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn canary_each_mistake_is_found() {
    for mistake in Mistake::ALL {
        let found = (0..20_000).find_map(|seed| find(mistake, seed).err());
        let found = found.unwrap_or_else(|| panic!("{mistake:?} is not found"));
        println!("{mistake:?}: {found}");
    }
}
