//! The options that all workloads have.

use std::path::PathBuf;

use clap::Args;

use super::job::Recipe;
use super::suite::{self, Plan};
use crate::args::{Defaults, FOLDER, MeasureArgs};
use crate::cache;
use crate::case::Case;
use crate::error::Result;
use crate::layout::SMALLER;
use crate::measurement::Measurement;
use crate::peers::registry::{self, EngineDef};

/// Runs take 2 s on 1G; with --quick 200 ms on 256M.
const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [2000, 200],
    size_bytes: [1 << 30, 256 << 20],
    least_bytes: 4 << 20,
};

/// The cases to measure, and the device.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The device: a file or a folder, made if missing and removed again; a block device;
    /// or ram
    #[arg(long, value_name = "PATH|ram", default_value = FOLDER)]
    pub device: PathBuf,

    /// Write the test data over what a block device holds
    #[arg(long)]
    pub overwrite: bool,

    /// Drop only the pages of the test file before a run, not the caches of the whole machine
    #[arg(long)]
    pub keep_caches: bool,

    /// Folder with `lib/libaio.so.1` of nowait [default: beside this program, or dist]
    #[arg(long, value_name = "FOLDER")]
    pub dist: Option<PathBuf>,
}

impl CommonArgs {
    /// Returns the engines asked for, or those of `default`.
    pub(crate) fn engines(&self, default: &[&str]) -> Result<Vec<&'static EngineDef>> {
        let asked: Vec<&str> = self.measure.engines.iter().map(String::as_str).collect();
        registry::find_all(if asked.is_empty() { default } else { &asked })
    }

    /// Returns what to measure, and where.
    ///
    /// # Errors
    /// The size asked for is too small.
    pub(crate) fn plan(&self, workload: &'static str, or: &Defaults) -> Result<Plan> {
        Ok(Plan {
            workload,
            extent: self.measure.extent(or)?,
            device: self.device.clone(),
            smaller: SMALLER,
            drop_caches: !self.keep_caches && cache::can_drop(),
            keep: self.measure.keep,
            overwrite: self.overwrite,
            dist: self.dist.clone(),
        })
    }

    /// Runs a workload: the list of its cases, or the measurement.
    ///
    /// # Errors
    /// The errors of [`MeasureArgs::run`].
    pub(crate) fn run(
        &self,
        workload: &'static str,
        cases: Vec<Case<Recipe>>,
    ) -> Result<Option<Measurement>> {
        let cases = self.measure.select(cases)?;
        let cases = cases.into_iter().map(Case::with_possible_targets).collect();
        let plan = self.plan(workload, &DEFAULTS)?;
        self.measure.run(cases, |cases| suite::measure(&plan, &cases))
    }
}
