//! `bench growth`: what becomes of a request when there are ever more: requests in flight, files,
//! contexts, threads.
//!
//! ```text
//!  cases   a curve for each of the four, a case for each point of it
//!  files   the bytes of the test file once more, in many files
//!  run     one point, in a process of its own: threads, each with its contexts
//! ```

mod cases;
mod files;
mod run;

use clap::Args;

use super::args::CommonArgs;
use super::suite::{self, Suite};
use crate::args::Defaults;
use crate::error::Result;
use crate::measurement::{Measurement, Pairs};
use crate::progress::Progress;

pub(super) use run::Run;

use cases::{Shape, cases, room_of_kernel};
use files::CutFiles;

const EXAMPLES: &str = "\
Five runs of 500 ms for each point, on 512M, and as much again for each number of files: five
minutes. With --quick 100 ms on 64M, and fewer points.

Examples:
  nowait bench growth --html growth.html       every curve
  nowait bench growth --case in-flight-100000 --engine nowait-uring,nowait-kaio
  nowait bench growth --list                   the points, nothing run";

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [500, 100],
    size_bytes: [512 << 20, 64 << 20],
    least_bytes: 16 << 20,
};

/// Measures what becomes of a request when there are ever more of them, of files, contexts and
/// threads.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct GrowthArgs {
    /// Cases, the device, and reports
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Runs every point of the curves, prints a table of each, and writes the reports asked for.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, the user
/// asked to stop, or `--check` was given and a target is not met.
pub(crate) fn run_growth(args: &GrowthArgs) -> Result<Option<Measurement>> {
    let common = &args.common;
    let shape = if common.measure.quick { &Shape::QUICK } else { &Shape::FULL };
    let room = room_of_kernel();
    let cases = common.measure.select_subjects(cases(shape, room))?;
    let plan = common.plan("growth", &DEFAULTS)?;
    common.measure.run(cases, |cases| {
        let progress = Progress::new();
        let device = suite::prepare(&plan, &progress)?;
        let counts: Vec<usize> = cases.iter().map(cases::files_of).collect();
        let size_bytes = plan.extent.size_bytes;
        let cut = |files| CutFiles::lay_out(&device.path, files, size_bytes, plan.keep, &progress);
        let cut = counts.into_iter().filter(|files| *files > 1).map(cut);
        // Removed when this ends.
        let _files: Vec<CutFiles> = cut.collect::<Result<_>>()?;
        let mut suite = Suite::new(&plan, device.files(), &progress)?;
        suite.expect(&cases);
        progress.start_runs();
        let measured = suite.measure(&cases);
        suite.note(format!(
            "the kernel's native AIO has no more than {room} requests in flight \
             (fs.aio-max-nr), so that libaio has no figures beyond"
        ));
        Ok(Measurement { pairs: Pairs::With(&["libaio"]), ..suite.finish(measured) })
    })
}
