//! `bench paper --device FILE`: the sources' tables on a device that exists, with all peers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::device::LaidOut;
use super::recipe::{Recipe, engine};
use super::sources;
use super::suite::{Plan, Suite};
use crate::args::Extent;
use crate::cache;
use crate::case::{Case, name};
use crate::error::Result;
use crate::interrupt;
use crate::measurement::{CaseResults, Measurement};
use crate::progress::Progress;
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
/// Agents and cleaners find their balance first: short runs tell little of it.
const CLEANER_LONGER: u32 = 4;
/// M9 in memory.
const RAM_BYTES: u64 = 256 << 20;

/// Measures every table, prints them, and writes the JSON asked for.
///
/// # Errors
/// The device cannot be used, a run failed or read wrong bytes, or the user asked to stop: what was
/// measured until then is printed and written.
pub(crate) fn run(args: &PaperPlan<'_>) -> Result<Measurement> {
    interrupt::install();
    let (rounds, runtime, size_bytes) = if args.quick { QUICK } else { FULL };
    let plan = Plan {
        workload: "paper",
        extent: Extent { rounds: args.rounds.unwrap_or(rounds), runtime, size_bytes },
        device: args.device.to_owned(),
        smaller: match args.quick {
            true => "pass another --device",
            false => "pass --quick or another --device",
        },
        drop_caches: !args.keep_caches && cache::can_drop(),
        keep: args.keep,
        overwrite: false,
        dist: None,
        apart: false,
    };
    args.reports.prepare()?;
    let progress = Progress::new();
    let cases = disk_cases(args.quick)?;
    let laid_out = LaidOut::prepare(&plan, &cases, &progress)?;
    let mut suite = Suite::new(&plan, laid_out.files.clone(), &progress)?;
    let ram = Plan {
        device: PathBuf::from("ram"),
        extent: Extent { size_bytes: size_bytes.min(RAM_BYTES), ..plan.extent },
        drop_caches: false,
        keep: false,
        ..plan.clone()
    };
    let has_ram = args.device != ram.device;
    let ram_cases = [named("M9", sources::randrw(&[], true)?)];
    suite.expect(&cases);
    if has_ram {
        suite.expect(&ram_cases);
    }
    progress.start_runs();
    let mut measured = suite.measure(&cases);
    if has_ram && !interrupt::happened() {
        measured.extend(in_memory(&ram, &ram_cases, &mut suite, &progress));
    }
    let measurement = suite.finish(measured);
    // The line of the progress ends before the report begins.
    drop(progress);
    measurement.tell(args.reports)?;
    Ok(measurement)
}

/// The tables that need the device.
fn disk_cases(quick: bool) -> Result<Vec<Case<Recipe>>> {
    let (blocks, kinds) = match quick {
        true => (&sources::RAW_PAGES[..1], &sources::RAW_KINDS[..2]),
        false => (sources::RAW_PAGES, &sources::RAW_KINDS[..]),
    };
    let mut cleaners = sources::cleaners(&[])?;
    let subjects = cleaners.iter_mut().flat_map(|case| &mut case.subjects);
    subjects.for_each(|subject| subject.job.longer = CLEANER_LONGER);
    let tables = [
        ("M1", sources::stress_rows(&[])?),
        ("M8", sources::rawio(&[engine("nowait-direct")?], kinds, blocks)?),
        ("M9", vec![sources::randrw(&[], false)?]),
        ("M13", cleaners),
        ("M13-prefetch", sources::prefetchers(&[])?),
        ("M7", sources::vectors_of_source()?),
    ];
    let cases = tables
        .into_iter()
        .flat_map(|(row, cases)| cases.into_iter().map(move |case| named(row, case)));
    Ok(cases.collect())
}

/// M9 in memory, on a device of its own.
fn in_memory(
    plan: &Plan,
    cases: &[Case<Recipe>],
    suite: &mut Suite<'_>,
    progress: &Progress,
) -> Vec<CaseResults> {
    let measured = LaidOut::prepare(plan, cases, progress).and_then(|laid_out| {
        let mut memory = Suite::new(plan, laid_out.files.clone(), progress)?;
        let measured = memory.measure(cases);
        suite.join(memory);
        Ok(measured)
    });
    measured.unwrap_or_else(|error| {
        suite.leave_out("M9 in memory", &error);
        Vec::new()
    })
}

/// Puts the row of the list of mechanisms before the name.
fn named(row: &str, case: Case<Recipe>) -> Case<Recipe> {
    Case { name: name(format!("{row}-{}", case.name)), ..case }.with_possible_targets()
}
