//! `bench paper --device FILE`: the sources' tables on a device that exists, with all peers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::job::Recipe;
use super::suite::{self, Plan, Suite};
use super::{aio_stress, cleaner, device, prefetch, randrw, rawio};
use crate::args::Extent;
use crate::cache;
use crate::case::{Case, name};
use crate::error::Result;
use crate::interrupt;
use crate::measurement::{CaseResults, Measurement};
use crate::peers::registry;
use crate::progress::Progress;
use crate::report::ReportArgs;
use crate::runner;
use crate::vector;

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
    };
    args.reports.prepare()?;
    let progress = Progress::new();
    let device = suite::prepare(&plan, &progress)?;
    let mut suite = Suite::new(&plan, device.files(), &progress)?;
    let block_bytes = device::direct_block_bytes(suite.path()).unwrap_or(4096);
    let cases = disk_cases(args.quick, block_bytes)?;
    let ram = Plan {
        device: PathBuf::from("ram"),
        extent: Extent { size_bytes: size_bytes.min(RAM_BYTES), ..plan.extent },
        drop_caches: false,
        keep: false,
        ..plan.clone()
    };
    let has_ram = args.device != ram.device;
    let ram_case = named("M9", randrw::case(&registry::find_all(randrw::DEFAULT)?, true));
    let ram_cases = [ram_case.with_possible_targets()];
    let vectors = vector::cases_of_source("M7");
    suite.expect(&cases);
    runner::expect(&progress, &vectors, plan.extent.rounds, |_| runtime.as_secs_f64());
    if has_ram {
        suite.expect(&ram_cases);
    }
    progress.start_runs();
    let mut measured = suite.measure(&cases);
    measured.extend(vectored(&plan, &vectors, &mut suite, &progress));
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
fn disk_cases(quick: bool, block_bytes: usize) -> Result<Vec<Case<Recipe>>> {
    let mut cases = Vec::new();
    let mut add = |row: &str, more: Vec<Case<Recipe>>| {
        cases.extend(more.into_iter().map(|case| named(row, case).with_possible_targets()));
    };
    add(
        "M1",
        aio_stress::cases(&registry::find_all(aio_stress::DEFAULT)?, aio_stress::Shape::SOURCE),
    );
    let nowait = registry::find_all(&["nowait-direct"])?;
    let blocks: Vec<usize> = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
        .into_iter()
        .filter(|block| *block >= block_bytes)
        .collect();
    let (blocks, kinds) = match quick {
        true => (&blocks[..1], &rawio::KINDS[..2]),
        false => (&blocks[..], &rawio::KINDS[..]),
    };
    add("M8", rawio::cases(&nowait, &rawio::MODES, kinds, blocks)?);
    add("M9", vec![randrw::case(&registry::find_all(randrw::DEFAULT)?, false)]);
    let shape = cleaner::Shape::DEFAULT;
    let cleaners = cleaner::cases(&cleaner::default_engines()?, shape)?;
    let longer = |mut case: Case<Recipe>| {
        case.subjects.iter_mut().for_each(|subject| subject.job.longer = CLEANER_LONGER);
        case
    };
    add("M13", cleaners.into_iter().map(longer).collect());
    add("M13-prefetch", prefetch::cases(&prefetch::default_engines()?, 8, 64)?);
    Ok(cases)
}

/// M7: one request of many segments against many requests.
fn vectored(
    plan: &Plan,
    cases: &[Case<vector::Chunks>],
    suite: &mut Suite<'_>,
    progress: &Progress,
) -> Vec<CaseResults> {
    let file = match vector::open(suite.path()) {
        Ok(file) => file,
        // A missing program is no reason to lose all other tables.
        Err(error) => {
            suite.leave_out("M7", &error);
            return Vec::new();
        }
    };
    match vector::measure(&file, cases, &plan.extent, progress) {
        Ok(measured) => measured,
        Err(error) => {
            suite.fail("M7", "vector", &error);
            Vec::new()
        }
    }
}

/// M9 in memory, on a device of its own.
fn in_memory(
    plan: &Plan,
    cases: &[Case<Recipe>],
    suite: &mut Suite<'_>,
    progress: &Progress,
) -> Vec<CaseResults> {
    let measured = suite::prepare(plan, progress).and_then(|device| {
        let mut memory = Suite::new(plan, device.files(), progress)?;
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
    Case { name: name(format!("{row}-{}", case.name)), ..case }
}
