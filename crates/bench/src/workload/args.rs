//! What all workloads can be told on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::case::Case;
use super::engine::{self, EngineDef};
use super::results::WorkloadResults;
use super::suite::{self, Plan};
use super::{report, run};
use crate::args::{FOLDER, at_least};
use crate::cache;
use crate::error::{BenchError, Result};
use crate::layout::SMALLER;
use crate::report::ReportArgs;
use crate::units::{parse_duration, parse_size};

/// The smallest file that says anything.
const SIZE_BYTES_MIN: u64 = 4 << 20;

/// Engines, device, length and reports of a measurement.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Engines to run, such as nowait-user,libaio,io_uring (default: those of each case)
    #[arg(long = "engine", value_name = "NAME,…", value_delimiter = ',')]
    pub engines: Vec<String>,

    /// Cases to run, by name (default: all)
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',')]
    pub cases: Vec<String>,

    /// What to measure on: a file or a folder, made if missing and removed again; a block device;
    /// or ram
    #[arg(long, value_name = "PATH|ram", default_value = FOLDER)]
    pub device: PathBuf,

    /// Bytes of it that are worked on [default: 1G, with --quick 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,

    /// Runs of each engine in each case; fewer than 5 give no verdict
    #[arg(long, value_name = "N", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,

    /// Longest time of one run [default: 2s, with --quick 200ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub runtime: Option<Duration>,

    /// Shorter runs on a smaller file
    #[arg(long)]
    pub quick: bool,

    /// Keep the laid-out file for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Write the test data over what a block device holds
    #[arg(long)]
    pub overwrite: bool,

    /// Drop only the pages of the test file before a run, not the caches of the whole machine
    #[arg(long)]
    pub keep_caches: bool,

    /// Folder with `lib/libaio.so.1` of nowait [default: beside this program, or dist]
    #[arg(long, value_name = "FOLDER")]
    pub dist: Option<PathBuf>,

    /// Reports to write
    #[command(flatten)]
    pub reports: ReportArgs,

    /// Fail unless every target is met beyond the noise
    #[arg(long)]
    pub check: bool,

    /// Print the cases and their targets, and run nothing
    #[arg(long)]
    pub list: bool,

    /// Carry out one run; the measurement calls itself with this
    #[arg(long, value_name = "JSON", hide = true)]
    pub one: Option<String>,
}

impl CommonArgs {
    /// Returns the engines asked for, or those of `default`.
    pub(crate) fn engines(&self, default: &[&str]) -> Result<Vec<&'static EngineDef>> {
        let asked: Vec<&str> = self.engines.iter().map(String::as_str).collect();
        let names = if asked.is_empty() { default } else { &asked };
        names.iter().map(|name| engine::find(name)).collect()
    }

    /// Leaves only the cases asked for.
    fn select(&self, mut cases: Vec<Case>) -> Result<Vec<Case>> {
        for name in &self.cases {
            if !cases.iter().any(|case| case.name == name) {
                let known: Vec<&str> = cases.iter().map(|case| case.name).collect();
                let known = known.join(", ");
                return Err(BenchError::usage(format!("no case '{name}'; there are {known}")));
            }
        }
        let asked =
            |case: &Case| self.cases.is_empty() || self.cases.iter().any(|name| case.name == name);
        cases.retain(|case| asked(case) && !case.subjects.is_empty());
        if cases.is_empty() {
            return Err(BenchError::usage("none of these engines can do these cases; see --list"));
        }
        Ok(cases.into_iter().map(Case::with_possible_targets).collect())
    }

    /// Returns what to measure, and where.
    ///
    /// # Errors
    /// The size is too small.
    pub(crate) fn plan(&self, workload: &'static str) -> Result<Plan> {
        let (runtime_ms, size) = if self.quick { (200, 256 << 20) } else { (2000, 1 << 30) };
        Ok(Plan {
            workload,
            rounds: usize::from(self.rounds),
            runtime: self.runtime.unwrap_or(Duration::from_millis(runtime_ms)),
            device: self.device.clone(),
            size_bytes: at_least(self.size.unwrap_or(size), SIZE_BYTES_MIN)?,
            smaller: SMALLER,
            drop_caches: !self.keep_caches && cache::can_drop(),
            keep: self.keep,
            overwrite: self.overwrite,
            dist: self.dist.clone(),
        })
    }
}

/// Runs a workload: one run of it, the list of its cases, or the measurement.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, the user
/// asked to stop, or `--check` was given and a target is not met.
pub(crate) fn run_workload(
    args: &CommonArgs,
    workload: &'static str,
    cases: Vec<Case>,
) -> Result<Option<WorkloadResults>> {
    let cases = args.select(cases)?;
    if args.list {
        crate::report::print(&report::list(&cases))?;
        return Ok(None);
    }
    args.reports.prepare()?;
    let results = suite::measure(&args.plan(workload)?, cases)?;
    tell(args, results).map(Some)
}

/// Carries out one run, if that is what was asked for.
pub(crate) fn run_one(args: &CommonArgs) -> Option<Result<()>> {
    args.one.as_deref().map(run::run)
}

/// Prints the figures, and writes the reports asked for.
pub(crate) fn tell(args: &CommonArgs, results: WorkloadResults) -> Result<WorkloadResults> {
    report::tell(&results, &args.reports)?;
    let (met, all) = results.met();
    if args.check && met < all {
        let message = format!("{met} of {all} targets are met beyond the noise");
        return Err(BenchError::failed(message));
    }
    Ok(results)
}
