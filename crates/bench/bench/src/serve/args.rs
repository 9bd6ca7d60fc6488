//! The command line of `bench serve`.

use clap::Args;

use super::cases::cases;
use super::suite;
use crate::args::{Defaults, DiskArgs, MeasureArgs};
use crate::error::Result;
use crate::measurement::Measurement;

const EXAMPLES: &str = "\
Five rounds of 5 s on an image of 1G; with --quick 500 ms, which is for a look only and says so.
Engines are servers.

Examples:
  nowait bench serve --quick                              some two minutes
  nowait bench serve --case read-4k --rounds 9
  nowait bench serve --engine nowait,qemu-native --runtime 10s
  nowait bench serve --engine nowait-fuse,qemu-fuse,loop  the image as a file";

const DEFAULTS: Defaults =
    Defaults { rounds: 5, runtime_ms: [5000, 500], size_bytes: [1 << 30; 2], least_bytes: 0 };

/// Measures servers on the same image, by NBD and as a file, and checks ours against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeBenchArgs {
    /// What to measure
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// What the image lies on
    #[command(flatten)]
    pub disk: DiskArgs,
}

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed, or a report cannot be written.
pub(crate) fn run_serve(args: &ServeBenchArgs) -> Result<Option<Measurement>> {
    let (measure, extent) = (&args.measure, args.measure.extent(&DEFAULTS)?);
    let cases = measure.select_subjects(cases())?;
    measure.run(cases, |cases| suite::measure(cases, &extent, &args.disk, measure.keep))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::serve::cases::Job;
    use crate::testing::parse;

    fn selection(arguments: &[&str]) -> Result<Vec<Case<Job>>> {
        parse::<ServeBenchArgs>(arguments).measure.select_subjects(cases())
    }

    #[test]
    fn the_cases_are_well_formed() {
        crate::testing::check(&cases());
    }

    #[test]
    fn cases_and_servers_can_be_chosen() {
        let all = selection(&[]).expect("valid");
        assert_eq!((all.len(), all[0].subjects.len()), (8, 10));
        let some = selection(&["--case", "read-4k", "--engine", "nowait,nbdkit"]).expect("valid");
        assert_eq!((some.len(), some[0].subjects.len()), (1, 2));
        assert_eq!(selection(&["--case", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
        assert_eq!(selection(&["--engine", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
    }
}
