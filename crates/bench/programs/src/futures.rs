//! `bench futures`: reads of a file as futures of Rust, nowait's and those of other crates.
//!
//! The other crates are runtimes that nothing else here needs: a program of its own has them
//! (`futures/`, outside of the workspace), one run of it for each way and round.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use nowait_harness::args::{Defaults, Extent, FOLDER, MeasureArgs};
use nowait_harness::case::{Case, Subject, Target};
use nowait_harness::error::{BenchError, Result};
use nowait_harness::host::Host;
use nowait_harness::launch;
use nowait_harness::layout::TestFile;
use nowait_harness::measurement::{CaseResults, Measurement};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::progress::Progress;
use nowait_harness::runner;

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
    /// What to measure
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
/// Threads of the case with several.
const THREADS: usize = 2;

/// What the program is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Job {
    way: &'static str,
    reads: &'static str,
    threads: usize,
}

const WAYS: [(&str, &str); 8] = [
    ("nowait", "nowait in tokio, with the kernel's page cache; direct where the reads are"),
    ("nowait-user", "nowait in tokio, with its own page cache"),
    ("tokio-uring", "tokio-uring"),
    ("compio", "compio on io_uring"),
    ("monoio", "monoio on io_uring"),
    ("tokio-fs", "tokio::fs: seek and read, on helper threads"),
    ("spawn-blocking", "tokio's spawn_blocking, with a pread inside"),
    ("pread", "a pread in the task, which holds the executor up"),
];

fn subjects(reads: &'static str, threads: usize) -> Vec<Subject<Job>> {
    // With direct reads no page cache takes part, and tokio::fs reads into memory of its own.
    let has = |way: &str| reads != "direct" || !["nowait-user", "tokio-fs"].contains(&way);
    let subject = |(way, about)| Subject {
        name: way,
        engine: (way, about),
        job: Job { way, reads, threads },
    };
    WAYS.into_iter().filter(|(way, _)| has(way)).map(subject).collect()
}

fn cases() -> Vec<Case<Job>> {
    const CACHED: &[Metric] = &[Metric::Iops, Metric::CpuUsPerIo];
    const FROM_DISK: &[Metric] =
        &[Metric::Iops, Metric::CpuUsPerIo, Metric::LatencyUsP50, Metric::LatencyUsP99];
    let case = |name, title: &str, about, columns, (reads, threads), targets| Case {
        name,
        title: title.to_owned(),
        about,
        source: String::new(),
        columns,
        subjects: subjects(reads, threads),
        targets,
    };
    vec![
        case(
            "cached",
            "4 KiB reads of what is cached, 32 tasks on one thread",
            "Each task gives the others a turn after 16 reads.",
            CACHED,
            ("cached", 1),
            vec![
                Target::at_least(Metric::Iops, "nowait-user", 1.25, "pread"),
                Target::at_least(Metric::Iops, "nowait", 0.84, "pread"),
                Target::at_least(Metric::Iops, "nowait", 1.5, "tokio-uring"),
                Target::at_least(Metric::Iops, "nowait", 1.5, "compio"),
            ],
        ),
        case(
            "threads",
            "The same on two threads, each with an executor and 32 tasks",
            "nowait has one engine for both.",
            CACHED,
            ("cached", THREADS),
            vec![
                Target::at_least(Metric::Iops, "nowait-user", 1.25, "pread"),
                Target::at_least(Metric::Iops, "nowait", 0.84, "pread"),
            ],
        ),
        case(
            "direct",
            "4 KiB reads with O_DIRECT, 32 tasks on one thread",
            "",
            FROM_DISK,
            ("direct", 1),
            vec![
                Target::at_least(Metric::Iops, "nowait", 1.0, "compio"),
                Target::at_most(Metric::CpuUsPerIo, "nowait", 1.1, "compio"),
            ],
        ),
        case(
            "uncached",
            "4 KiB reads of what is not cached, each block once, 32 tasks on one thread",
            "The file is dropped from the page cache before each run.",
            FROM_DISK,
            ("uncached", 1),
            vec![
                Target::at_least(Metric::Iops, "nowait", 1.1, "tokio-uring"),
                Target::at_most(Metric::CpuUsPerIo, "nowait", 1.1, "tokio-uring"),
                Target::at_least(Metric::Iops, "nowait-user", 1.1, "tokio-uring"),
                Target::at_most(Metric::CpuUsPerIo, "nowait-user", 1.1, "tokio-uring"),
            ],
        ),
    ]
}

/// Runs the cases, prints their tables and the targets, and writes the JSON asked for.
///
/// # Errors
/// The program is not there, a run failed or read wrong bytes, or `--check` was given and a target
/// is not met.
pub fn run_futures(args: &FuturesArgs) -> Result<Option<Measurement>> {
    let extent = args.measure.extent(&DEFAULTS)?;
    args.measure.run(args.measure.select_subjects(cases())?, |cases| {
        let program = args.program.canonicalize().map_err(|error| {
            let shown = args.program.display();
            BenchError::failed(format!("{shown}: {error}; see `bench futures --help`"))
        })?;
        let progress = Progress::new();
        let file = TestFile::with_pattern(args.dir.join("nowait-bench.futures"), args.measure.keep);
        let laid_out = |written| progress.laying_out(written, extent.size_bytes);
        file.lay_out(extent.size_bytes, 0, &|_| true, &laid_out)?;
        runner::expect(&progress, &cases, extent.rounds, |_| extent.runtime.as_secs_f64());
        progress.start_runs();
        let run = |_: &Case<Job>, subject: &Subject<Job>, round| {
            one_run(&program, file.path(), subject.job, &extent, round).map(Some)
        };
        let runs = runner::measure(&progress, &cases, extent.rounds, run)?;
        let params = json!({
            "rounds": extent.rounds,
            "runtime_s": extent.runtime.as_secs_f64(),
            "tasks": TASKS,
            "size_bytes": extent.size_bytes,
        });
        let results = cases.iter().zip(runs).map(|(case, runs)| (case, runs.only(|_| true)));
        let results = results.filter(|(_, runs)| !runs.is_empty());
        let results = results.map(|(case, runs)| CaseResults::new(case, runs, json!({})));
        let host = Host::describe(&args.dir, "none");
        Ok(Measurement::new("futures", host, params, results.collect()))
    })
}

/// What the program prints.
#[derive(Debug, Deserialize)]
struct Report {
    reads: u64,
    seconds: f64,
    cpu_seconds: f64,
    /// Reads whose times were taken.
    timed: u64,
    latency_us_p50: f64,
    latency_us_p99: f64,
    latency_us_max: f64,
}

impl Report {
    fn sample(&self) -> Sample {
        let reads = self.reads as f64;
        let mut sample = Sample::from([
            (Metric::Iops, reads / self.seconds),
            (Metric::CpuUsPerIo, self.cpu_seconds * 1e6 / reads),
        ]);
        if self.timed > 0 {
            sample.insert(Metric::LatencyUsP50, self.latency_us_p50);
            sample.insert(Metric::LatencyUsP99, self.latency_us_p99);
            sample.insert(Metric::LatencyUsMax, self.latency_us_max);
        }
        sample
    }
}

fn one_run(program: &Path, file: &Path, job: Job, extent: &Extent, round: usize) -> Result<Sample> {
    /// For opening, and what is to be cached before.
    const BEFORE: Duration = Duration::from_mins(1);
    let mut command = Command::new(program);
    launch::inherit_nothing_of_ours(&mut command);
    command.arg(job.way).arg(file);
    let numbers = [
        ("--size", extent.size_bytes.to_string()),
        ("--reads", job.reads.to_owned()),
        ("--threads", job.threads.to_string()),
        ("--tasks", TASKS.to_string()),
        ("--runtime-ms", extent.runtime.as_millis().to_string()),
        ("--seed", round.to_string()),
    ];
    for (name, number) in numbers {
        command.arg(name).arg(number);
    }
    let finished = launch::run(&mut command, extent.runtime + BEFORE)?;
    let failed = |why: &str| BenchError::failed(format!("{} of {}: {why}", job.reads, job.way));
    if !finished.status.success() {
        return Err(failed(finished.stderr.trim()));
    }
    let report: Report =
        serde_json::from_str(&finished.stdout).map_err(|error| failed(&error.to_string()))?;
    if report.reads == 0 {
        return Err(failed("it read nothing"));
    }
    Ok(report.sample())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_well_formed() {
        nowait_harness::testing::check(&cases());
    }

    #[test]
    fn what_the_program_prints_is_understood() {
        let printed = r#"{"reads": 4000, "seconds": 2.0, "cpu_seconds": 0.004, "timed": 1,
            "latency_us_p50": 3.0, "latency_us_p99": 5.0, "latency_us_max": 9.0}"#;
        let report: Report = serde_json::from_str(printed).unwrap();
        let sample = report.sample();
        assert_eq!((sample[&Metric::Iops], sample[&Metric::CpuUsPerIo]), (2000.0, 1.0));
        assert_eq!(sample[&Metric::LatencyUsP99], 5.0);
        let untimed = Report { timed: 0, ..report }.sample();
        assert!(!untimed.contains_key(&Metric::LatencyUsP99));
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let extent = Extent { rounds: 1, runtime: Duration::ZERO, size_bytes: 1 << 20 };
        let job = Job { way: "pread", reads: "cached", threads: 1 };
        let (file, program) = (Path::new("/nowhere"), Path::new("/bin/false"));
        let error = one_run(program, file, job, &extent, 0).unwrap_err();
        assert!(error.to_string().starts_with("cached of pread: "), "{error}");
    }
}
