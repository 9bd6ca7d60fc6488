//! Images on a store that fails, by seed; and mistakes on purpose, which must be found.

use nowait_log::mistake::Mistake;
use nowait_objects::run::{Report, run};

/// How many actions a run has.
const ACTIONS: usize = 150;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// The seeds to run: `SIM_SEED` names the only one, `SEEDS` says how many. `SIM_COMMIT`, the hash
/// of a commit, adds one.
fn seeds() -> Vec<u64> {
    if let Some(seed) = number("SIM_SEED") {
        return vec![seed];
    }
    let commit = std::env::var("SIM_COMMIT").ok();
    let commit = commit.and_then(|hash| u64::from_str_radix(hash.get(..16)?, 16).ok());
    (0..number("SEEDS").unwrap_or(2_000)).chain(commit).collect()
}

/// Nothing flushed is lost, nothing older comes back, nothing hangs, and a writer that was replaced
/// neither promises nor, after a minute, reads.
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
        sum.snapshots += report.snapshots;
        sum.removed += report.removed;
        sum.clones += report.clones;
        sum.strangers += report.strangers;
    }
    println!("{sum:?}");
    let runs = seeds().len() as u64;
    // Each run ends with two takeovers; most have more, and something to lose.
    assert!(sum.takeovers >= runs, "{sum:?}");
    if runs >= 1_000 {
        assert!(
            sum.flushes > 10 * runs
                && sum.reads > 10 * runs
                && sum.fenced > runs / 4
                && sum.collected > runs
                && sum.shrunk > runs
                && sum.beyond > runs / 5
                && sum.snapshots > runs
                && sum.removed > runs / 5
                && sum.clones > runs / 5
                && sum.strangers > runs / 10,
            "{sum:?}"
        );
    }
}

#[test]
fn canary_each_mistake_is_found() {
    for mistake in Mistake::ALL {
        let found = (0..20_000).find_map(|seed| run(seed, ACTIONS, Some(mistake)).err());
        let found = found.unwrap_or_else(|| panic!("{mistake:?} is not found"));
        println!("{mistake:?}: {found}");
    }
}
