//! The options of all workloads, and the definition of a workload.

use std::path::PathBuf;

use clap::Args;

use super::recipe::Recipe;
use super::suite::Workload;
use crate::args::{Defaults, FOLDER, MeasureArgs};
use crate::case::Case;
use crate::error::Result;
use crate::measurement::{Measurement, Pairs};

pub(crate) const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [2000, 200],
    size_bytes: [1 << 30, 256 << 20],
    least_bytes: 4 << 20,
};

pub(crate) struct SuiteDef {
    pub(crate) name: &'static str,
    pub(crate) defaults: Defaults,
    pub(crate) cases: fn(&WorkloadArgs) -> Result<Vec<Case<Recipe>>>,
    /// `true`: `--engine` accepts any engine. `false`: `--engine` selects among the subjects of the
    /// cases.
    pub(crate) takes_engines: bool,
    /// Reads and writes use two files, and the cases are measured one after another. So a cache
    /// that one case has filled serves all runs of that case.
    pub(crate) apart: bool,
    pub(crate) pairs: Pairs,
    pub(crate) examples: &'static str,
    pub(crate) note: Option<fn() -> String>,
}

impl SuiteDef {
    pub(crate) const fn new(
        name: &'static str,
        cases: fn(&WorkloadArgs) -> Result<Vec<Case<Recipe>>>,
    ) -> Self {
        let (defaults, takes_engines, apart) = (DEFAULTS, true, false);
        let (pairs, examples, note) = (Pairs::WithFirst, "", None);
        Self { name, defaults, cases, takes_engines, apart, pairs, examples, note }
    }
}

/// The cases to measure, and the device.
#[derive(Debug, Clone, Args)]
pub struct WorkloadArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The device: a file or a folder, made if missing and removed again; a block device;
    /// or ram
    #[arg(long, visible_alias = "dir", value_name = "PATH|ram", default_value = FOLDER)]
    pub device: PathBuf,

    /// Write the test data over what a block device holds
    #[arg(long)]
    pub overwrite: bool,

    /// Drop only the pages of the test file before a run, not the caches of the whole machine
    #[arg(long)]
    pub keep_caches: bool,
}

pub(crate) fn run_workload(
    suite: &'static SuiteDef,
    args: &WorkloadArgs,
) -> Result<Option<Measurement>> {
    let (cases, measure) = ((suite.cases)(args)?, &args.measure);
    let cases = match suite.takes_engines {
        true => measure.select(cases)?,
        false => measure.select_subjects(cases)?,
    };
    let cases = cases.into_iter().map(Case::with_possible_targets).collect();
    measure.measure(&suite.defaults, cases, |_, _| Workload::new(suite, args.clone()))
}
