//! The command line of `bench cached`, for the `nowait` tool to embed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::cases::{CASES, Case, Subject};
use super::results::CachedResults;
use super::suite::{self, Plan};
use super::{report, run};
use crate::args::FOLDER;
use crate::cache;
use crate::error::{BenchError, Context, Result};
use crate::interrupt;
use crate::units::{parse_duration, parse_size};

const EXAMPLES: &str = "\
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
    /// Cases to run: names or letters such as a,c,f-random (default: all)
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',')]
    pub cases: Vec<String>,

    /// Engines to run, such as nowait,psync,io_uring (default: those of each case)
    #[arg(long = "engine", value_name = "NAME,…", value_delimiter = ',')]
    pub engines: Vec<String>,

    /// Runs of each engine in each case; fewer than 5 give no verdict
    #[arg(long, value_name = "N", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,

    /// Time of one run [default: 2s, with --quick 150ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub runtime: Option<Duration>,

    /// Size of the large cached set; the file is four times as large [default: 2G, with --quick
    /// 128M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,

    /// Shorter runs on smaller sets
    #[arg(long)]
    pub quick: bool,

    /// Keep the laid-out files for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Folder of the test files; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Drop only the pages of the test file before a run, not the caches of the whole machine
    #[arg(long)]
    pub keep_caches: bool,

    /// Write the figures to a JSON file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a report to an HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

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
    if args.list {
        println!("{}", report::list(&selection));
        return Ok(None);
    }
    let results = suite::measure(&args.plan(selection)?)?;
    println!("{}", report::text(&results));
    report::write(&results, args.json.as_deref(), args.html.as_deref())?;
    interrupt::check()?;
    let (met, all) = results.met();
    if args.check && met < all {
        let message = format!("{met} of {all} targets are met beyond the noise");
        return Err(BenchError::failed(message));
    }
    Ok(Some(results))
}

impl CachedArgs {
    /// Returns the cases asked for, each with the subjects asked for.
    fn selection(&self) -> Result<Vec<(&'static Case, Vec<Subject>)>> {
        for name in &self.cases {
            if !CASES.iter().any(|case| case.answers_to(name)) {
                let known: Vec<&str> = CASES.iter().map(|case| case.name).collect();
                let known = known.join(", ");
                return Err(BenchError::usage(format!("no case '{name}'; there are {known}")));
            }
        }
        for name in &self.engines {
            let mut subjects = CASES.iter().flat_map(|case| case.subjects);
            if !subjects.any(|subject| subject.name == name) {
                return Err(BenchError::usage(format!("no engine '{name}'; see --list")));
            }
        }
        let asked = |case: &&Case| {
            self.cases.is_empty() || self.cases.iter().any(|name| case.answers_to(name))
        };
        let wanted = |subject: &Subject| {
            self.engines.is_empty() || self.engines.iter().any(|name| name == subject.name)
        };
        let subjects = |case: &'static Case| {
            (case, case.subjects.iter().copied().filter(wanted).collect::<Vec<_>>())
        };
        let selection = CASES.iter().filter(asked).map(subjects);
        Ok(selection.filter(|(_, subjects)| !subjects.is_empty()).collect())
    }

    fn plan(&self, cases: Vec<(&'static Case, Vec<Subject>)>) -> Result<Plan> {
        let (runtime_ms, size) = match self.quick {
            true => (150, SIZE_BYTES_QUICK),
            false => (2000, SIZE_BYTES),
        };
        // The program calls itself in the way it was called, up to the name of the command.
        let before = std::env::args_os().skip(1).take_while(|argument| argument != "cached");
        let own = ["cached", "--one"].map(OsString::from);
        Ok(Plan {
            cases,
            rounds: usize::from(self.rounds),
            runtime: self.runtime.unwrap_or(Duration::from_millis(runtime_ms)),
            size_bytes: self.size.unwrap_or(size).max(SIZE_BYTES_MIN),
            folder: self.dir.clone(),
            drop_caches: !self.keep_caches && cache::can_drop(),
            keep: self.keep,
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
