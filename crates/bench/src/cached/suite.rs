//! Runs every subject of every case, each in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cases::{Case, Share, Subject};
use super::results::{CachedResults, CaseResults};
use super::spec::{Outcome, Spec};
use crate::cache;
use crate::error::{BenchError, Context, Result};
use crate::host::Host;
use crate::interleave::interleave;
use crate::interrupt;
use crate::launch;
use crate::layout::TestFile;
use crate::metric::{Metric, Sample};
use crate::progress::Progress;
use crate::seccomp;

/// What a run may take beyond its runtime: filling a cache, writing back.
const GRACE: Duration = Duration::from_mins(3);

/// What to measure, and where.
pub(crate) struct Plan {
    /// The cases, each with the subjects that were asked for.
    pub(crate) cases: Vec<(&'static Case, Vec<Subject>)>,
    pub(crate) rounds: usize,
    pub(crate) runtime: Duration,
    pub(crate) size_bytes: u64,
    pub(crate) folder: PathBuf,
    pub(crate) drop_caches: bool,
    pub(crate) keep: bool,
    /// This program, and what to call it with before the description of a run.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<std::ffi::OsString>,
}

/// The files of a measurement.
struct Files {
    read: TestFile,
    write: TestFile,
    outcome: tempfile::NamedTempFile,
}

/// Carries out a plan.
///
/// # Errors
/// Something is missing, a run failed or returned wrong bytes, or the user asked to stop.
pub(crate) fn measure(plan: &Plan) -> Result<CachedResults> {
    interrupt::install();
    let progress = Progress::new();
    let asked = &plan.folder;
    std::fs::create_dir_all(asked).context(|| format!("create {}", asked.display()))?;
    let scratch =
        tempfile::tempdir_in(asked).context(|| format!("write in {}", asked.display()))?;
    let files = lay_out(plan, scratch.path(), &progress)?;
    for (case, subjects) in &plan.cases {
        let runtime_s = plan.runtime.as_secs_f64();
        subjects
            .iter()
            .for_each(|subject| progress.expect(case.name, subject.name, plan.rounds, runtime_s));
    }
    progress.start_runs();
    let mut notes = Vec::new();
    let mut cases = Vec::new();
    for (case, subjects) in &plan.cases {
        let samples = interleave(subjects, plan.rounds, |round, subject| {
            progress.start(case.name, subject.name, round);
            let sample = run_once(plan, &files, case, subject, round as u64 + 1);
            progress.finish_run();
            sample.map_err(|error| {
                let code = format!("case {}, {}: {error}", case.name, subject.name);
                BenchError::failed(code)
            })
        })?;
        let runs = subjects.iter().map(|subject| subject.name).zip(samples).collect();
        cases.push(CaseResults { case, runs });
        if interrupt::happened() {
            break;
        }
    }
    if !plan.drop_caches {
        notes.push("only the pages of the test file were dropped before a run".to_owned());
    }
    Ok(CachedResults {
        host: Host::describe(&plan.folder, "not used"),
        rounds: plan.rounds,
        runtime_s: plan.runtime.as_secs_f64(),
        size_bytes: plan.size_bytes,
        caches_dropped: plan.drop_caches,
        cases,
        notes,
    })
}

/// Writes the file that is read, and the one that is written.
fn lay_out(plan: &Plan, scratch: &Path, progress: &Progress) -> Result<Files> {
    let sets = |write: bool| {
        let cases = plan.cases.iter().filter(move |(case, _)| case.work.write == write);
        cases.map(|(case, _)| case.work.set.of(plan.size_bytes)).max().unwrap_or(0)
    };
    // Either file fills our pool for the runs that work on the other.
    let fill = Share(1, 2).of(plan.size_bytes);
    let folder = if plan.keep { &plan.folder } else { scratch };
    let file = |name: &str, keep| TestFile::with_pattern(folder.join(name), keep);
    let read = file("nowait-bench.pattern", plan.keep);
    // What was stamped by writes is not laid out any more, which no read of it minds.
    let write = file("nowait-bench.written", plan.keep);
    for (file, bytes) in [(&read, sets(false).max(fill)), (&write, sets(true).max(fill))] {
        let done = |written| progress.laying_out(written, bytes);
        file.lay_out(bytes, 0, &|_| true, &done)?;
    }
    let outcome = tempfile::NamedTempFile::new().context(|| "temporary file".to_owned())?;
    Ok(Files { read, write, outcome })
}

/// Brings the kernel's cache into the state the case starts from, and runs.
fn run_once(
    plan: &Plan,
    files: &Files,
    case: &Case,
    subject: &Subject,
    seed: u64,
) -> Result<Sample> {
    let (file, other) = match case.work.write {
        false => (&files.read, &files.write),
        true => (&files.write, &files.read),
    };
    if case.is_cold() || case.work.write {
        cache::make_cold(file.path(), plan.drop_caches)?;
    }
    let spec = Spec {
        path: file.path().to_owned(),
        other: other.path().to_owned(),
        outcome: files.outcome.path().to_owned(),
        seed,
        ..spec(plan, case, subject)
    };
    let text = serde_json::to_string(&spec).map_err(|e| BenchError::failed(e.to_string()))?;
    let mut command = Command::new(&plan.program);
    command.args(&plan.arguments).arg(text);
    if subject.kaio {
        seccomp::forbid_uring(&mut command);
    }
    let finished = launch::run(&mut command, plan.runtime + GRACE)?;
    if !finished.status.success() {
        return Err(BenchError::failed(finished.stderr.trim().to_owned()));
    }
    let text = std::fs::read_to_string(files.outcome.path()).context(|| "outcome".to_owned())?;
    let outcome: Outcome =
        serde_json::from_str(&text).map_err(|e| BenchError::failed(format!("outcome: {e}")))?;
    let mut sample = sample(&outcome);
    finished.usage.memory(&mut sample);
    sample.insert(Metric::OtherBusyCores, finished.usage.other_us / finished.usage.wall_us);
    Ok(sample)
}

fn spec(plan: &Plan, case: &Case, subject: &Subject) -> Spec {
    let work = &case.work;
    Spec {
        engine: subject.engine,
        kaio: subject.kaio,
        direct: subject.direct,
        sync: work.sync,
        write: work.write,
        access: work.access,
        warm: subject.warm.unwrap_or(work.warm),
        fsync: work.fsync,
        one_lap: case.is_cold() && !work.write,
        batches: work.batches,
        threads: subject.threads,
        depth: subject.depth.unwrap_or(work.depth),
        block_bytes: subject.block_bytes.unwrap_or(work.block_bytes),
        set_bytes: work.set.of(plan.size_bytes),
        pool_bytes: work.pool.of(plan.size_bytes),
        runtime_ms: plan.runtime.as_millis() as u64,
        seed: 0,
        path: PathBuf::new(),
        other: PathBuf::new(),
        outcome: PathBuf::new(),
    }
}

fn sample(outcome: &Outcome) -> Sample {
    let requests = outcome.requests.max(1) as f64;
    let [p50, p99, p999, max] = outcome.submit_us;
    Sample::from([
        (Metric::Iops, requests * 1e6 / outcome.wall_us),
        (Metric::IopsPerCore, requests * 1e6 / outcome.cpu_us.max(1.0)),
        (Metric::BytesPerS, outcome.bytes as f64 * 1e6 / outcome.wall_us),
        (Metric::CpuUsPerIo, outcome.cpu_us / requests),
        (Metric::ContextSwitchesPerIo, outcome.switches / requests),
        (Metric::SubmitUsP50, p50),
        (Metric::SubmitUsP99, p99),
        (Metric::SubmitUsP999, p999),
        (Metric::SubmitUsMax, max),
        (Metric::SubmitSleeps, outcome.submit_sleeps),
    ])
}
