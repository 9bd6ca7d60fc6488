//! `bench limits`: what a machine does at best, beside what the kernel and nowait make of it.
//!
//! ```text
//!  cases   each with the limit first: what cannot be avoided
//!  act     what cannot be avoided, as a program of a few lines: a call, a copy, a wake-up
//! ```
//!
//! All other cases use one of the engines: the device, in the way that costs least.

mod act;
mod cases;

use std::path::Path;

use clap::Args;

use super::args::CommonArgs;
use super::suite::{self, Plan, Suite};
use crate::args::Defaults;
use crate::error::Result;
use crate::layout::TestFile;
use crate::measurement::{Measurement, Pairs};
use crate::progress::Progress;

pub(super) use act::{Act, run as act_out};

const EXAMPLES: &str = "\
Five runs of 1 s on 1G: five minutes. With --quick 150 ms on 256M: one minute.

Examples:
  nowait bench limits                         every limit, and how far nowait is from it
  nowait bench limits --case copy-4k,disk-4k --rounds 9
  nowait bench limits --list                  what is compared, nothing run";

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [1000, 150],
    size_bytes: [1 << 30, 256 << 20],
    least_bytes: 16 << 20,
};

/// Measures what this machine does at best, beside what the kernel and nowait make of it.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct LimitsArgs {
    /// Cases, the device, and reports
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Runs every case, prints a table of each with the ratios to its limit, and writes the reports
/// asked for.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, or the user
/// asked to stop.
pub(crate) fn run_limits(args: &LimitsArgs) -> Result<Option<Measurement>> {
    let common = &args.common;
    let cases = common.measure.select_subjects(cases::cases()?)?;
    let plan = common.plan("limits", &DEFAULTS)?;
    common.measure.run(cases, |cases| {
        let progress = Progress::new();
        let device = suite::prepare(&plan, &progress)?;
        let written = written_beside(&device.path, &plan, &progress)?;
        let mut cases = cases;
        let mut files = device.files();
        match &written {
            Some(written) => written.path().clone_into(&mut files.write),
            None => cases.retain(|case| case.name != cases::DURABLE),
        }
        let mut suite = Suite::new(&plan, files, &progress)?;
        if written.is_none() {
            let why = format!("{}: {} is no file", cases::DURABLE, device.path.display());
            suite.note(format!("left out {why}"));
        }
        suite.expect(&cases);
        progress.start_runs();
        let measured = suite.measure(&cases);
        Ok(Measurement { pairs: Pairs::WithFirst, ..suite.finish(measured) })
    })
}

/// Lays out the file that is written; a block device has none beside it.
fn written_beside(path: &Path, plan: &Plan, progress: &Progress) -> Result<Option<TestFile>> {
    if !path.is_file() {
        return Ok(None);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".written");
    let file = TestFile::with_pattern(path.with_file_name(name), plan.keep);
    let size_bytes = cases::WRITTEN.of(plan.extent.size_bytes);
    file.lay_out(size_bytes, 0, &|_| true, &|written| progress.laying_out(written, size_bytes))?;
    Ok(Some(file))
}
