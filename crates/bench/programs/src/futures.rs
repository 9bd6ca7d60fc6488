//! `bench futures`: reads of a file by Rust futures of nowait and of other crates.
//!
//! The other crates are runtimes that no other code here needs, so a separate program has them
//! (`futures/`, outside of the workspace). The program runs once for each case, way and round.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use nowait_harness::args::{Defaults, Extent, FOLDER, MeasureArgs};
use nowait_harness::case::Case;
use nowait_harness::cases::{self, table};
use nowait_harness::error::{Failure, Result};
use nowait_harness::launch;
use nowait_harness::layout::TestFile;
use nowait_harness::measurement::{CaseResults, Measurement};
use nowait_harness::metric::Sample;
use nowait_harness::suite::{Description, Run, Session, Suite};

const EXAMPLES: &str = "\
Five runs of 2 s on a file of 256M; with --quick 300 ms.
The program that has the crates is built by hand first, and takes a minute or two:

  cargo build --release --manifest-path crates/bench/programs/futures/Cargo.toml

Examples:
  nowait bench futures
  nowait bench futures --case cached --program ./nowait-bench-futures";

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [2000, 300],
    size_bytes: [256 << 20; 2],
    least_bytes: 16 << 20,
};

/// Measures reads of a file as futures, nowait's against those of other crates.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct FuturesArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The program that has the crates
    #[arg(long, value_name = "FILE", default_value = PROGRAM)]
    pub program: PathBuf,

    /// Folder of the test file; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,
}

const PROGRAM: &str = "crates/bench/programs/futures/target/release/nowait-bench-futures";
/// Tasks of a thread, each with one read in flight.
const TASKS: usize = 32;

/// An engine is a way of the program, by its name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    reads: String,
    threads: usize,
}

type Job = cases::Job<Way, Work>;

fn cases() -> Vec<Case<Job>> {
    table(include_str!("futures.toml"))
}

pub fn run_futures(args: &FuturesArgs) -> Result<Option<Measurement>> {
    let cases = args.measure.select_subjects(cases())?;
    args.measure.measure(&DEFAULTS, cases, |_, _| {
        let program = args.program.canonicalize().map_err(|error| {
            let shown = args.program.display();
            Failure::new(format!("{shown}: {error}; see `bench futures --help`"))
        })?;
        let file = TestFile::new(args.dir.join("nowait-bench.futures"), args.measure.keep);
        Ok(Futures { program, file, folder: args.dir.clone() })
    })
}

struct Futures {
    program: PathBuf,
    file: TestFile,
    folder: PathBuf,
}

impl Suite for Futures {
    type Job = Job;

    fn prepare(&mut self, _cases: &mut Vec<Case<Job>>, session: &mut Session) -> Result<()> {
        session.lay_out(&self.file)
    }

    fn run(&mut self, it: Run<'_, Job>, session: &mut Session) -> Result<Sample> {
        let (way, work, path) = (it.subject.name, &it.subject.job.work, self.file.path());
        one_run(&self.program, path, way, work, &session.extent, it.round)
    }

    fn describe(&mut self, _results: &[CaseResults], _session: &mut Session) -> Description {
        Description::new("futures", &self.folder, json!({ "tasks": TASKS }))
    }
}

fn one_run(
    program: &Path,
    file: &Path,
    way: &str,
    work: &Work,
    extent: &Extent,
    round: usize,
) -> Result<Sample> {
    /// Time limit for opening the file and for filling the cache before the run.
    const BEFORE: Duration = Duration::from_mins(1);
    let mut command = Command::new(program);
    launch::inherit_nothing_of_ours(&mut command);
    let job = json!({
        "way": way,
        "threads": work.threads,
        "path": file,
        "size": extent.size_bytes,
        "reads": work.reads,
        "tasks": TASKS,
        "seed": round,
        "runtime_ms": extent.runtime.as_millis() as u64,
    });
    command.arg(job.to_string());
    launch::answer(&mut command, extent.runtime + BEFORE)
        .map_err(|error| Failure::new(format!("{} of {way}: {error}", work.reads)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_well_formed() {
        nowait_harness::testing::check(&cases());
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let extent = Extent { rounds: 1, runtime: Duration::ZERO, size_bytes: 1 << 20 };
        let work = Work { reads: "cached".to_owned(), threads: 1 };
        let (file, program) = (Path::new("/nowhere"), Path::new("/bin/false"));
        let error = one_run(program, file, "pread", &work, &extent, 0).unwrap_err();
        assert!(error.to_string().starts_with("cached of pread: "), "{error}");
    }
}
