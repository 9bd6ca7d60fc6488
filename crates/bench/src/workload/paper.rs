//! `bench paper --device FILE`: the sources' tables on a device that exists, with all peers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::case::{Case, Target, name};
use super::engine::{self, EngineDef};
use super::results::{CaseResults, WorkloadResults};
use super::suite::{Plan, Suite};
use super::{aio_stress, cleaner, device, prefetch, randrw, rawio, report};
use crate::cache;
use crate::error::Result;
use crate::metric::Metric;
use crate::progress::Progress;
use crate::report::ReportArgs;
use crate::vector;

/// What is said on the command line.
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
/// The name of the workload.
const WORKLOAD: &str = "paper";
/// M9 in memory.
const RAM_BYTES: u64 = 256 << 20;

/// Measures every table, prints them, and writes the JSON asked for.
///
/// # Errors
/// The device cannot be used, a run failed or read wrong bytes, or the user asked to stop: what was
/// measured until then is printed and written.
pub(crate) fn run(args: &PaperPlan<'_>) -> Result<WorkloadResults> {
    let (rounds, runtime, size_bytes) = if args.quick { QUICK } else { FULL };
    let plan = Plan {
        workload: WORKLOAD,
        rounds: args.rounds.unwrap_or(rounds),
        runtime,
        device: args.device.to_owned(),
        size_bytes,
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
    let mut suite = Suite::begin(&plan, &progress)?;
    let block_bytes = device::direct_block_bytes(suite.path()).unwrap_or(4096);
    let cases = disk_cases(args.quick, block_bytes)?;
    let ram = Plan {
        device: PathBuf::from("ram"),
        size_bytes: plan.size_bytes.min(RAM_BYTES),
        drop_caches: false,
        keep: false,
        ..plan.clone()
    };
    let has_ram = args.device != ram.device;
    let ram_case = named("M9", randrw::case(&engines(randrw::DEFAULT)?, true));
    let ram_case = ram_case.with_possible_targets();
    suite.expect(&cases);
    vector::expect(&progress, &plan);
    if has_ram {
        suite.expect(std::slice::from_ref(&ram_case));
    }
    progress.start_runs();
    let mut measured = suite.measure(cases);
    if !suite.is_interrupted() {
        measured.extend(vectored(&plan, &mut suite, &progress));
    }
    if has_ram && !suite.is_interrupted() {
        measured.extend(in_memory(&ram, ram_case, &mut suite, &progress));
    }
    let results = suite.finish(measured);
    // The line of the progress ends before the report begins.
    drop(progress);
    report::tell(&results, args.reports)?;
    Ok(results)
}

/// The tables that need the device.
fn disk_cases(quick: bool, block_bytes: usize) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let mut add = |row: &str, more: Vec<Case>| {
        cases.extend(more.into_iter().map(|case| named(row, case).with_possible_targets()));
    };
    add("M1", aio_stress::cases(&engines(aio_stress::DEFAULT)?, aio_stress::Shape::SOURCE));
    let nowait = engines(&["nowait-direct"])?;
    let blocks: Vec<usize> = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
        .into_iter()
        .filter(|block| *block >= block_bytes)
        .collect();
    let (blocks, kinds) = match quick {
        true => (&blocks[..1], &rawio::KINDS[..2]),
        false => (&blocks[..], &rawio::KINDS[..]),
    };
    add("M8", rawio::cases(&nowait, &rawio::MODES, kinds, blocks)?);
    add("M9", vec![randrw::case(&engines(randrw::DEFAULT)?, false)]);
    let shape = cleaner::Shape::DEFAULT;
    let cleaners = cleaner::cases(&cleaner::default_engines()?, shape)?;
    let longer = |case| Case { longer: CLEANER_LONGER, ..case };
    add("M13", cleaners.into_iter().map(longer).collect());
    add("M13-prefetch", prefetch::cases(&prefetch::default_engines()?, 8, 64)?);
    Ok(cases)
}

/// M7: one request of many segments against many requests.
fn vectored(plan: &Plan, suite: &mut Suite<'_>, progress: &Progress) -> Vec<CaseResults> {
    let file = match vector::open(suite.path()) {
        Ok(file) => file,
        // What is missing here is no reason to lose all other tables.
        Err(error) => {
            suite.leave_out("M7", &error);
            return Vec::new();
        }
    };
    let runs = match vector::measure_on(&file, plan, progress) {
        Ok(runs) => runs,
        Err(error) => {
            suite.fail("M7", "vector", &error);
            return Vec::new();
        }
    };
    let results = |(case_name, runs): vector::CaseRuns| CaseResults {
        case: Case {
            name: name(format!("M7-{case_name}")),
            title: "4 KiB blocks that adjoin, direct: a request each (split) → one of all (vector)"
                .to_owned(),
            source: "up to 2 : 1 in CPU time; readv against a loop ÷5".to_owned(),
            sync: false,
            cold: false,
            longer: 1,
            columns: &[Metric::BytesPerS, Metric::CpuUsPerIo, Metric::ContextSwitchesPerIo],
            subjects: Vec::new(),
            targets: vec![Target::at_most(Metric::CpuUsPerIo, "vector", 0.5, "split")],
        },
        runs: runs.without_empty(),
    };
    runs.into_iter().map(results).filter(|case| !case.runs.is_empty()).collect()
}

/// M9 in memory, on a device of its own.
fn in_memory(
    plan: &Plan,
    case: Case,
    suite: &mut Suite<'_>,
    progress: &Progress,
) -> Vec<CaseResults> {
    match Suite::begin(plan, progress) {
        Ok(mut memory) => {
            let measured = memory.measure(vec![case]);
            suite.join(memory);
            measured
        }
        Err(error) => {
            suite.leave_out("M9 in memory", &error);
            Vec::new()
        }
    }
}

fn engines(names: &[&str]) -> Result<Vec<&'static EngineDef>> {
    names.iter().map(|name| engine::find(name)).collect()
}

/// Puts the row of the list of mechanisms before the name.
fn named(row: &str, case: Case) -> Case {
    Case { name: name(format!("{row}-{}", case.name)), ..case }
}
