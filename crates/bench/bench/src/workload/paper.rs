//! `bench paper --device FILE`: the sources' tables on a device that exists, with all peers.

use std::path::Path;
use std::time::Duration;

use nowait_harness::suite;

use super::device::MEMORY;
use super::recipe::{Recipe, engine};
use super::sources;
use super::suite::{Plan, Workload};
use crate::args::Extent;
use crate::cache;
use crate::case::{Case, name};
use crate::error::Result;
use crate::measurement::{Measurement, Pairs};
use crate::report::ReportArgs;

/// The options of the command line.
#[derive(Debug, Clone)]
pub(crate) struct PaperPlan<'a> {
    pub(crate) device: &'a Path,
    pub(crate) quick: bool,
    pub(crate) rounds: Option<usize>,
    pub(crate) keep: bool,
    pub(crate) keep_caches: bool,
    pub(crate) reports: &'a ReportArgs,
}

/// Rounds, the longest time of a run, and bytes: in full, for seven minutes on a disk of 500 MB/s;
/// and quick.
const FULL: (usize, Duration, u64) = (5, Duration::from_millis(110), 512 << 20);
const QUICK: (usize, Duration, u64) = (1, Duration::from_millis(50), 64 << 20);

/// Measures every table, prints them, and writes the JSON asked for.
///
/// # Errors
/// The device cannot be used, a run failed or read wrong bytes, or the user asked to stop: the
/// figures until then are printed and written.
pub(crate) fn run(args: &PaperPlan<'_>) -> Result<Measurement> {
    let (rounds, runtime, size_bytes) = if args.quick { QUICK } else { FULL };
    let extent = Extent { rounds: args.rounds.unwrap_or(rounds), runtime, size_bytes };
    let plan = Plan {
        workload: "paper",
        device: args.device.to_owned(),
        smaller: match args.quick {
            true => "pass another --device",
            false => "pass --quick or another --device",
        },
        drop_caches: !args.keep_caches && cache::can_drop(),
        keep: args.keep,
        overwrite: false,
        apart: false,
        pairs: Pairs::WithFirst,
        note: None,
    };
    args.reports.prepare()?;
    let cases = cases(args.quick, args.device != Path::new(MEMORY))?;
    let measurement = suite::measure(&mut Workload::new(plan)?, cases, extent)?;
    args.reports.say(&measurement.text());
    measurement.write(args.reports)?;
    Ok(measurement)
}

/// The tables; on a disk M9 is measured in memory too.
fn cases(quick: bool, on_disk: bool) -> Result<Vec<Case<Recipe>>> {
    let (blocks, kinds) = match quick {
        true => (&sources::RAW_PAGES[..1], &sources::RAW_KINDS[..2]),
        false => (sources::RAW_PAGES, &sources::RAW_KINDS[..]),
    };
    let mut in_memory = if on_disk { vec![sources::randrw(&[], true)?] } else { Vec::new() };
    let subjects = in_memory.iter_mut().flat_map(|case| &mut case.subjects);
    subjects.for_each(|subject| subject.job.in_memory = true);
    let tables = [
        ("M1", sources::stress_rows(&[])?),
        ("M8", sources::rawio(&[engine("nowait-direct")?], kinds, blocks)?),
        ("M9", vec![sources::randrw(&[], false)?]),
        ("M9", in_memory),
        ("M7", sources::vectors_of_source()?),
    ];
    let cases = tables
        .into_iter()
        .flat_map(|(row, cases)| cases.into_iter().map(move |case| named(row, case)));
    Ok(cases.collect())
}

/// Puts the row of the list of mechanisms before the name.
fn named(row: &str, case: Case<Recipe>) -> Case<Recipe> {
    Case { name: name(format!("{row}-{}", case.name)), ..case }.with_possible_targets()
}
