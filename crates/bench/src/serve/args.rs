//! The command line of `bench serve`, for the `nowait` tool to embed.

use std::time::Duration;

use clap::Args;

use super::cases::{CASES, Case, SUBJECTS};
use super::report;
use super::suite::{self, Plan};
use crate::args::MeasureArgs;
use crate::error::{Context, Result};
use crate::interrupt;
use crate::report::print;

const EXAMPLES: &str = "\
Five rounds of 5 s on an image of 1G; with --quick 500 ms, which is for a look only and says so.
Engines are servers.

Examples:
  nowait bench serve --quick                              some two minutes
  nowait bench serve --case read-4k --rounds 9
  nowait bench serve --engine nowait,qemu-native --runtime 10s
  nowait bench serve --engine nowait-fuse,qemu-fuse,loop  the image as a file";

/// Measures servers on the same image, by NBD and as a file, and checks ours against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeBenchArgs {
    /// What to measure
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed, or a report cannot be written.
pub fn run_serve(args: &ServeBenchArgs) -> Result<()> {
    let (plan, measure) = (args.plan()?, &args.measure);
    if measure.list {
        print(&report::list(&plan))?;
        return Ok(());
    }
    measure.reports.prepare()?;
    let results = suite::measure(&plan)?;
    measure.reports.say(&report::text(&results));
    report::write(&results, &measure.reports)?;
    interrupt::check()?;
    measure.require(report::met(&results))
}

impl ServeBenchArgs {
    fn plan(&self) -> Result<Plan> {
        let measure = &self.measure;
        let answers_to = |case: &Case, name: &str| case.name == name;
        let cases = measure.chosen_cases(&CASES, |case| case.name, answers_to)?;
        measure.check_engines(&SUBJECTS.map(|(name, _)| name))?;
        let wanted = SUBJECTS.into_iter().filter(|(name, _)| measure.wants_engine(name));
        let runtime_ms = if measure.quick { 500 } else { 5000 };
        Ok(Plan {
            cases,
            subjects: wanted.collect(),
            rounds: usize::from(measure.rounds),
            runtime: measure.runtime.unwrap_or(Duration::from_millis(runtime_ms)),
            size_bytes: measure.size.unwrap_or(1 << 30),
            folder: measure.disk.dir.clone(),
            drop_caches: measure.disk.drops_caches(),
            keep: measure.keep,
            nowait: std::env::current_exe().context(|| "find this program".to_owned())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::Against;
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ServeBenchArgs,
    }

    fn plan(arguments: &[&str]) -> Result<Plan> {
        let cli = Cli::try_parse_from(["x"].iter().chain(arguments));
        cli.expect("well-formed").args.plan()
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn cases_and_servers_can_be_chosen() {
        let all = plan(&[]).expect("valid");
        assert_eq!((all.cases.len(), all.subjects.len()), (8, 10));
        let some = plan(&["--case", "read-4k", "--engine", "nowait,nbdkit"]).expect("valid");
        assert_eq!((some.cases.len(), some.subjects.len()), (1, 2));
        assert_eq!(plan(&["--case", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
        assert_eq!(plan(&["--engine", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
    }

    #[test]
    fn targets_name_servers_that_there_are() {
        for target in CASES.iter().flat_map(|case| case.targets) {
            let other = match target.against {
                Against::Server(name) => Some(name),
                Against::Bytes(_) => None,
            };
            for wanted in [target.ours].into_iter().chain(other) {
                assert!(SUBJECTS.iter().any(|(name, _)| *name == wanted), "{}", target.text());
            }
        }
    }
}
