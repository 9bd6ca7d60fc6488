//! The command line of `bench cached`, for the `nowait` tool to embed.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::cases::{CASES, Case, Subject};
use super::results::CachedResults;
use super::suite::{self, Plan};
use super::{report, run};
use crate::args::{MeasureArgs, at_least};
use crate::error::{Context, Result};
use crate::interrupt;
use crate::report::{distinct, print};

const EXAMPLES: &str = "\
Runs of 2 s; a large cached set of 2G, and a file four times as large; with --quick 150 ms and 128M.

Examples:
  nowait bench cached --quick                  every case, small: under three minutes
  nowait bench cached --case a,e --rounds 9    some cases, more certain
  nowait bench cached --engine nowait,psync --case a-4k
  nowait bench cached --list                   the cases and their targets, nothing run";

/// Sets and files are shares and multiples of this.
const SIZE_BYTES: u64 = 2 << 30;
const SIZE_BYTES_QUICK: u64 = 128 << 20;
const SIZE_BYTES_MIN: u64 = 16 << 20;

/// Measures our own page cache against every peer, and checks it against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CachedArgs {
    /// What to measure
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Carry out one run; the measurement calls itself with this
    #[arg(long, value_name = "JSON", hide = true)]
    pub one: Option<String>,
}

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// Returns `None` when it was only asked for a list, or for one run.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, or
/// `--check` was given and a target is not met.
pub fn run_cached(args: &CachedArgs) -> Result<Option<CachedResults>> {
    if let Some(one) = &args.one {
        return run::run(one).map(|()| None);
    }
    let selection = args.selection()?;
    let measure = &args.measure;
    if measure.list {
        print(&report::list(&selection))?;
        return Ok(None);
    }
    measure.reports.prepare()?;
    let results = suite::measure(&args.plan(selection)?)?;
    measure.reports.say(&report::text(&results));
    report::write(&results, &measure.reports)?;
    interrupt::check()?;
    measure.require(results.met())?;
    Ok(Some(results))
}

impl CachedArgs {
    /// Returns the cases asked for, each with the subjects asked for.
    fn selection(&self) -> Result<Vec<(&'static Case, Vec<Subject>)>> {
        let cases = self.measure.chosen_cases(&CASES, |case| case.name, Case::answers_to)?;
        let names = CASES.iter().flat_map(|case| case.subjects).map(|subject| subject.name);
        self.measure.check_engines(&distinct(names))?;
        let subjects = |case: &'static Case| {
            let wanted = case.subjects.iter().copied();
            (case, wanted.filter(|one| self.measure.wants_engine(one.name)).collect::<Vec<_>>())
        };
        let selection = cases.into_iter().map(subjects);
        Ok(selection.filter(|(_, subjects)| !subjects.is_empty()).collect())
    }

    fn plan(&self, cases: Vec<(&'static Case, Vec<Subject>)>) -> Result<Plan> {
        let (runtime_ms, size) = match self.measure.quick {
            true => (150, SIZE_BYTES_QUICK),
            false => (2000, SIZE_BYTES),
        };
        // The program calls itself in the way it was called, up to the name of the command.
        let before = std::env::args_os().skip(1).take_while(|argument| argument != "cached");
        let own = ["cached", "--one"].map(OsString::from);
        let measure = &self.measure;
        Ok(Plan {
            cases,
            rounds: usize::from(measure.rounds),
            runtime: measure.runtime.unwrap_or(Duration::from_millis(runtime_ms)),
            size_bytes: at_least(measure.size.unwrap_or(size), SIZE_BYTES_MIN)?,
            folder: measure.disk.dir.clone(),
            drop_caches: measure.disk.drops_caches(),
            keep: measure.keep,
            program: std::env::current_exe().context(|| "find this program".to_owned())?,
            arguments: before.chain(own).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: CachedArgs,
    }

    fn selection(arguments: &[&str]) -> Result<Vec<(&'static Case, Vec<Subject>)>> {
        let cli = Cli::try_parse_from(["x"].iter().chain(arguments));
        cli.expect("well-formed").args.selection()
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn cases_and_engines_can_be_chosen() {
        assert_eq!(selection(&[]).expect("valid").len(), CASES.len());
        let chosen = selection(&["--case", "f", "--engine", "nowait,libaio"]).expect("valid");
        let names: Vec<&str> = chosen.iter().map(|(case, _)| case.name).collect();
        assert_eq!(names, ["f-random", "f-sequential"]);
        assert_eq!(chosen[0].1.len(), 2);
        assert_eq!(selection(&["--case", "zz"]).map_err(|e| e.exit_code()).err(), Some(2));
        assert_eq!(selection(&["--engine", "x"]).map_err(|e| e.exit_code()).err(), Some(2));
    }
}
