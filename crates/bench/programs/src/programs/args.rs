//! The command line of `bench programs`.

use std::path::PathBuf;

use clap::Args;

use super::cases::cases;
use super::suite::{self, Plan};
use nowait_harness::args::{Defaults, DiskArgs, MeasureArgs, found_in_dist};
use nowait_harness::error::Result;
use nowait_harness::measurement::Measurement;

const EXAMPLES: &str = "\
Five rounds of 10 s on files of 2G; with --quick 1 s on 256M. Engines are ways to run a program.
A program that is not there is skipped, with the command that installs it; only --install
downloads anything, and only Python's packages, into a folder of their own.

Examples:
  nowait bench programs --quick                 every program that is there
  nowait bench programs --list                  all cases, with their ways and targets
  nowait bench programs --case qemu-sparse-4k --html qemu.html
  nowait bench programs --case c,n --install    NIXL and Python's caio, installed for this
  nowait bench programs --engine system,nowait";

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [10_000, 1000],
    size_bytes: [2 << 30, 256 << 20],
    least_bytes: 64 << 20,
};

/// The folder of Python's packages in that of the test files.
const PYTHON: &str = "nowait-bench-python";

/// Measures real programs, unmodified, with and without nowait, and checks them against targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProgramsArgs {
    /// What to measure
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// What the files of the programs lie on
    #[command(flatten)]
    pub disk: DiskArgs,

    /// Folder with `lib/libnowait_preload.so` [default: beside this program, or dist]
    #[arg(long, value_name = "FOLDER")]
    pub dist: Option<PathBuf>,

    /// Folder of Python's packages, a virtual environment [default: nowait-bench-python in --dir]
    #[arg(long, value_name = "FOLDER")]
    pub python: Option<PathBuf>,

    /// Install Python's packages into that folder, if they are not there
    #[arg(long)]
    pub install: bool,
}

/// Runs the cases, prints a table of all and one for each, and writes the reports asked for.
///
/// Returns `None` when it was only asked for a list.
///
/// # Errors
/// Something is missing that every case needs, runs failed, a report cannot be written, or
/// `--check` was given and a target is not met.
pub fn run_programs(args: &ProgramsArgs) -> Result<Option<Measurement>> {
    let (measure, extent) = (&args.measure, args.measure.extent(&DEFAULTS)?);
    measure.run(measure.select_subjects(cases())?, |cases| {
        let plan = Plan {
            extent,
            folder: args.disk.dir.clone(),
            drop_caches: args.disk.drops_caches(),
            keep: measure.keep,
            preload: found_in_dist(args.dist.as_deref(), "lib/libnowait_preload.so")?,
            python: args.python.clone().unwrap_or_else(|| args.disk.dir.join(PYTHON)),
            install: args.install,
        };
        suite::measure(&plan, &cases)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::testing::parse;

    #[test]
    fn the_cases_are_well_formed() {
        nowait_harness::testing::check(&cases());
    }

    #[test]
    fn cases_and_ways_can_be_chosen() {
        let select =
            |arguments: &[&str]| parse::<ProgramsArgs>(arguments).measure.select_subjects(cases());
        let some = select(&["--case", "qemu-sparse-4k", "--engine", "system,nowait"]);
        let some = some.expect("valid");
        assert_eq!((some.len(), some[0].subjects.len()), (1, 2));
        let exit_code = |arguments: &[&str]| select(arguments).map_err(|it| it.exit_code()).err();
        assert_eq!(exit_code(&["--case", "emacs"]), Some(2));
        assert_eq!(exit_code(&["--engine", "windows"]), Some(2));
    }
}
