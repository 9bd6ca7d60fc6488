//! The command line of the measurements, for the `nowait` tool to embed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cache;
use crate::error::{BenchError, Result};
use crate::job::Case;
use crate::report::ReportArgs;
use crate::subject::Subject;
use crate::units::{self, parse_duration, parse_size};

/// Default folder of the test files: on a disk nearly everywhere, which /tmp is not.
pub(crate) const FOLDER: &str = "/var/tmp";

const SUBMIT_EXAMPLES: &str = "\
Runs of 3 s on a file of 8G that is read uncached; with --quick 1 s on 2G.

Examples:
  nowait bench submit --quick                  every case, short: about five minutes
  nowait bench submit --case a,b --rounds 9    two cases, more certain
  nowait bench submit --dir /mnt/xfs --html report.html --json report.json
  nowait bench submit --engine system,nowait-threads --case a
  nowait bench submit --list                   the cases and their targets, nothing run";

/// Examples of `bench posix`, which has the same options.
pub const POSIX_EXAMPLES: &str = "\
Runs of 3 s on a file of 8G that is read uncached; with --quick 1 s on 2G.

Examples:
  nowait bench posix --quick                   both cases, short: about two minutes
  nowait bench posix --case buffered --rounds 9
  nowait bench posix --list                    the cases and their targets, nothing run";

const DEMO_EXAMPLES: &str = "\
Examples:
  nowait bench demo                            one table, and nowait-demo.html
  nowait bench demo --dir /mnt/xfs --html /tmp/demo.html";

/// What every measurement of cases is asked.
#[derive(Debug, Clone, Args)]
pub struct MeasureArgs {
    /// Cases to run, by name; a letter means all that begin with it (default: all)
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',')]
    pub cases: Vec<String>,

    /// Engines to run, such as nowait,io_uring (default: those of each case)
    #[arg(long = "engine", value_name = "NAME,…", value_delimiter = ',')]
    pub engines: Vec<String>,

    /// Runs of each engine in each case; fewer than 5 give no verdict
    #[arg(long, value_name = "N", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,

    /// Time of one run [default: below]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub runtime: Option<Duration>,

    /// Size of what is worked on [default: below]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,

    /// Shorter runs, mostly on less
    #[arg(long)]
    pub quick: bool,

    /// Keep what was laid out for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Fail unless every target is met beyond the noise
    #[arg(long)]
    pub check: bool,

    /// Print the cases and their targets, and run nothing
    #[arg(long)]
    pub list: bool,

    /// Reports to write
    #[command(flatten)]
    pub reports: ReportArgs,

    /// What the file under test lies on
    #[command(flatten)]
    pub disk: DiskArgs,
}

/// Where the test files lie, and what becomes of the page cache.
#[derive(Debug, Clone, Args)]
pub struct DiskArgs {
    /// Folder of the test files; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Drop only the pages of the test file before a run, not the caches of the whole machine
    #[arg(long)]
    pub keep_caches: bool,
}

/// Measures the time inside `io_submit`, case by case, and checks it against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = SUBMIT_EXAMPLES)]
pub struct SubmitArgs {
    /// What to measure
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Where things lie
    #[command(flatten)]
    pub places: Places,
}

/// Shows what nowait does to a program that nobody changed, in under 90 seconds.
#[derive(Debug, Clone, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Where the HTML report goes
    #[arg(long, value_name = "FILE", default_value = "nowait-demo.html")]
    pub html: PathBuf,

    /// Write the figures to a JSON file too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Everything, file creation included, ends about within this time
    #[arg(long, value_name = "TIME", default_value = "70s", value_parser = parse_duration)]
    pub budget: Duration,

    /// Size of the file that is read
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_size)]
    pub size: u64,

    /// What the file under test lies on
    #[command(flatten)]
    pub disk: DiskArgs,

    /// Where things lie
    #[command(flatten)]
    pub places: Places,
}

/// Where the programs lie, and memory.
#[derive(Debug, Clone, Args)]
pub struct Places {
    /// A folder in memory (tmpfs) for the case b-tmpfs
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    pub tmpfs: PathBuf,

    /// Folder with `lib/libnowait_preload.so` [default: beside this program, or dist]
    #[arg(long, value_name = "FOLDER")]
    pub dist: Option<PathBuf>,

    /// The fio to run
    #[arg(long, value_name = "PROGRAM", default_value = "fio")]
    pub fio: PathBuf,
}

impl Places {
    /// Finds the library to preload.
    ///
    /// # Errors
    /// It is not there; the message says where it was looked for.
    pub(crate) fn preload(&self) -> Result<PathBuf> {
        let beside = std::env::current_exe().ok();
        let beside = beside.as_deref().and_then(Path::parent).and_then(Path::parent);
        let folders: Vec<PathBuf> = match &self.dist {
            Some(dist) => vec![dist.clone()],
            None => beside.map(Path::to_owned).into_iter().chain(["dist".into()]).collect(),
        };
        let candidates = folders.iter().map(|folder| folder.join("lib/libnowait_preload.so"));
        let found = candidates.clone().find_map(|path| path.canonicalize().ok());
        found.ok_or_else(|| {
            let tried: Vec<String> = candidates.map(|path| path.display().to_string()).collect();
            let tried = tried.join(" and ");
            BenchError::failed(format!("no {tried}; run `make dist` or pass --dist"))
        })
    }
}

impl MeasureArgs {
    /// Returns those of `cases` that were asked for.
    ///
    /// # Errors
    /// There is no case of a name; the message has those that there are.
    pub(crate) fn chosen_cases<C>(
        &self,
        cases: &'static [C],
        name: impl Fn(&C) -> &'static str,
        answers_to: impl Fn(&C, &str) -> bool,
    ) -> Result<Vec<&'static C>> {
        for asked in &self.cases {
            if !cases.iter().any(|case| answers_to(case, asked)) {
                let known: Vec<&str> = cases.iter().map(&name).collect();
                return Err(unknown("case", asked, &known));
            }
        }
        let wanted = |case: &&C| {
            self.cases.is_empty() || self.cases.iter().any(|asked| answers_to(case, asked))
        };
        Ok(cases.iter().filter(wanted).collect())
    }

    /// Fails unless every engine asked for is among `known`.
    pub(crate) fn check_engines(&self, known: &[&str]) -> Result<()> {
        match self.engines.iter().find(|asked| !known.contains(&asked.as_str())) {
            Some(asked) => Err(unknown("engine", asked, known)),
            None => Ok(()),
        }
    }

    /// Tells whether an engine was asked for, or all were.
    pub(crate) fn wants_engine(&self, name: &str) -> bool {
        self.engines.is_empty() || self.engines.iter().any(|asked| asked == name)
    }

    /// Fails, if that was asked for, unless all targets were met.
    pub(crate) fn require(&self, (met, all): (usize, usize)) -> Result<()> {
        if self.check && met < all {
            let message = format!("{met} of {all} targets are met beyond the noise");
            return Err(BenchError::failed(message));
        }
        Ok(())
    }
}

impl DiskArgs {
    /// Tells whether the page cache of the whole machine is dropped before cold runs.
    pub(crate) fn drops_caches(&self) -> bool {
        !self.keep_caches && cache::can_drop()
    }
}

/// Returns a size; one that is too small would be measured as another one than asked for.
///
/// # Errors
/// It is below `least_bytes`.
pub(crate) fn at_least(size_bytes: u64, least_bytes: u64) -> Result<u64> {
    if size_bytes >= least_bytes {
        return Ok(size_bytes);
    }
    let [size, least] = [size_bytes, least_bytes].map(|bytes| units::bytes(bytes as f64));
    Err(BenchError::usage(format!("--size is {size}; it must be at least {least}")))
}

/// Returns the error of a name that is none, with those that there are.
pub(crate) fn unknown(what: &str, asked: &str, known: &[&str]) -> BenchError {
    BenchError::usage(format!("no {what} '{asked}'; there are {}", known.join(", ")))
}

impl SubmitArgs {
    /// Returns those of `cases` that were asked for, each with the subjects asked for.
    pub(crate) fn selection(
        &self,
        cases: &'static [Case],
    ) -> Result<Vec<(&'static Case, Vec<Subject>)>> {
        let chosen = self.measure.chosen_cases(cases, |case| case.name, Case::answers_to)?;
        let engines = self.measure.engines.iter().map(|name| Subject::parse(name));
        let engines = engines.collect::<Result<Vec<Subject>>>()?;
        let subjects = |case: &Case| match engines.as_slice() {
            [] => case.subjects.to_vec(),
            engines => engines.to_vec(),
        };
        Ok(chosen.into_iter().map(|case| (case, subjects(case))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::CASES;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    enum Cli {
        Submit(SubmitArgs),
        Demo(DemoArgs),
    }

    fn submit(arguments: &[&str]) -> SubmitArgs {
        let arguments = ["x", "submit"].iter().chain(arguments);
        match Cli::try_parse_from(arguments) {
            Ok(Cli::Submit(args)) => args,
            Ok(Cli::Demo(_)) => unreachable!("asked for submit"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_is_the_default() {
        let selection = submit(&[]).selection(&CASES).expect("valid");
        assert_eq!(selection.len(), CASES.len());
        assert_eq!(selection[0].1, CASES[0].subjects);
    }

    #[test]
    fn cases_and_engines_can_be_chosen() {
        let args = submit(&["--case", "b,f", "--engine", "libaio,nowait-threads"]);
        let selection = args.selection(&CASES).expect("valid");
        let names: Vec<&str> = selection.iter().map(|(case, _)| case.name).collect();
        assert_eq!(names, ["b", "b-tmpfs", "f"]);
        assert_eq!(selection[0].1, [Subject::System, Subject::NowaitThreads]);
        assert_eq!(
            submit(&["--case", "zz"]).selection(&CASES).map_err(|e| e.exit_code()).err(),
            Some(2)
        );
    }

    #[test]
    fn a_missing_library_is_told_with_its_place() {
        let args = submit(&["--dist", "/nonexistent"]);
        let error = args.places.preload().expect_err("not there");
        assert!(error.to_string().contains("/nonexistent/lib/libnowait_preload.so"), "{error}");
    }
}
