//! The command line of `bench serve`, for the `nowait` tool to embed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::cases::{CASES, SUBJECTS};
use super::report;
use super::suite::{self, Plan};
use crate::args::FOLDER;
use crate::error::{BenchError, Context, Result};
use crate::interrupt;
use crate::units::{parse_duration, parse_size};

const EXAMPLES: &str = "\
Examples:
  nowait bench serve --quick                              under two minutes
  nowait bench serve --case read-4k --rounds 9
  nowait bench serve --engine nowait,qemu-native --runtime 10s";

/// Measures NBD servers on the same image, and checks ours against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeBenchArgs {
    /// Cases to run, such as read-4k,write-128k (default: all)
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',')]
    pub cases: Vec<String>,

    /// Servers to run, such as nowait,qemu-uring,nbdkit (default: all)
    #[arg(long = "engine", value_name = "NAME,…", value_delimiter = ',')]
    pub engines: Vec<String>,

    /// Runs of each server in each case; fewer than 5 give no verdict
    #[arg(long, value_name = "N", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,

    /// Time of one run [default: 5s, with --quick 500ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub runtime: Option<Duration>,

    /// Size of the image
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    pub size: u64,

    /// Shorter runs
    #[arg(long)]
    pub quick: bool,

    /// Keep the image for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Folder of the image; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Write the figures to a JSON file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a report to an HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed, or a report cannot be written.
pub fn run_serve(args: &ServeBenchArgs) -> Result<()> {
    let results = suite::measure(&args.plan()?)?;
    println!("{}", report::text(&results));
    report::write(&results, args.json.as_deref(), args.html.as_deref())?;
    interrupt::check()
}

impl ServeBenchArgs {
    fn plan(&self) -> Result<Plan> {
        let cases = choose("case", &self.cases, CASES.iter(), |case| case.name)?;
        let subjects = choose("engine", &self.engines, SUBJECTS.into_iter(), |one| one.0)?;
        let runtime_ms = if self.quick { 500 } else { 5000 };
        Ok(Plan {
            cases,
            subjects,
            rounds: usize::from(self.rounds),
            runtime: self.runtime.unwrap_or(Duration::from_millis(runtime_ms)),
            size_bytes: self.size,
            folder: self.dir.clone(),
            keep: self.keep,
            nowait: std::env::current_exe().context(|| "find this program".to_owned())?,
        })
    }
}

/// Returns those of `all` whose names were asked for; all of them if none was.
fn choose<T>(
    what: &str,
    asked: &[String],
    all: impl Iterator<Item = T> + Clone,
    name: impl Fn(&T) -> &'static str,
) -> Result<Vec<T>> {
    if let Some(unknown) = asked.iter().find(|asked| !all.clone().any(|one| name(&one) == **asked))
    {
        let known: Vec<&str> = all.map(|one| name(&one)).collect();
        let known = known.join(", ");
        return Err(BenchError::usage(format!("no {what} '{unknown}'; there are {known}")));
    }
    let wanted = |one: &T| asked.is_empty() || asked.iter().any(|asked| asked == name(one));
    Ok(all.filter(wanted).collect())
}

#[cfg(test)]
mod tests {
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
        assert_eq!((all.cases.len(), all.subjects.len()), (4, 6));
        let some = plan(&["--case", "read-4k", "--engine", "nowait,nbdkit"]).expect("valid");
        assert_eq!((some.cases.len(), some.subjects.len()), (1, 2));
        assert_eq!(plan(&["--case", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
        assert_eq!(plan(&["--engine", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
    }

    #[test]
    fn targets_name_servers_that_there_are() {
        for target in CASES.iter().flat_map(|case| case.targets) {
            assert!(SUBJECTS.iter().any(|(name, _)| *name == target.against), "{}", target.text());
        }
    }
}
