//! Runs the cases: every way of every program that is there, interleaved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::cases::{self, Job, Mode};
use super::need::{self, Lack};
use super::overview::{self, Skipped};
use super::run::{self, Run, Tools};
use super::timer::Timer;
use crate::gap;
use nowait_harness::args::Extent;
use nowait_harness::cache;
use nowait_harness::case::{Case, Subject};
use nowait_harness::case::{ITSELF, ITSELF_POSIX};
use nowait_harness::error::{Context, Result};
use nowait_harness::host::Host;
use nowait_harness::interrupt;
use nowait_harness::layout::TestFile;
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::Sample;
use nowait_harness::progress::Progress;
use nowait_harness::runner;
use nowait_harness::units;
use nowait_harness::verdict;

/// What a run costs beside its runtime, until it is known better: start, end, and empty caches.
const OVERHEAD_S: f64 = 2.0;
/// What figures that are published are of, at least.
const PUBLISHED_S: f64 = 5.0;

/// What to measure with, and where.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) extent: Extent,
    pub(crate) folder: PathBuf,
    pub(crate) drop_caches: bool,
    pub(crate) keep: bool,
    pub(crate) preload: PathBuf,
    /// The folder of Python's packages.
    pub(crate) python: PathBuf,
    /// What is missing of them may be installed.
    pub(crate) install: bool,
}

/// A running measurement.
struct Suite<'a> {
    plan: &'a Plan,
    progress: &'a Progress,
    tools: Tools,
    data: TestFile,
    fresh: TestFile,
    /// Runs that failed, by case and subject: they are not repeated.
    failed: BTreeMap<(&'static str, &'static str), String>,
    /// Of these, those that a filter keeps from their interface, as it should.
    refused: BTreeSet<(&'static str, &'static str)>,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    _removed_on_drop: TempDir,
}

/// Measures the cases whose programs are there, and puts all together.
///
/// # Errors
/// The folder cannot be used, or the user asked to stop before anything was measured.
pub(crate) fn measure(plan: &Plan, cases: &[Case<Job>]) -> Result<Measurement> {
    let progress = Progress::new();
    let mut suite = Suite::new(plan, &progress)?;
    let cases = suite.leave_possible(cases);
    let Extent { rounds, runtime, .. } = plan.extent;
    if !cases.is_empty() {
        suite.notes.push(gap_note(runtime));
    }
    runner::expect(&progress, &cases, rounds, |_| runtime.as_secs_f64() + OVERHEAD_S);
    progress.start_runs();
    let mut results = Vec::new();
    for case in &cases {
        results.extend(suite.measure_case(case)?);
        if interrupt::happened() {
            break;
        }
    }
    Ok(suite.finish(results))
}

impl<'a> Suite<'a> {
    fn new(plan: &'a Plan, progress: &'a Progress) -> Result<Self> {
        let asked = absolute(&plan.folder)?;
        std::fs::create_dir_all(&asked).context(|| format!("create {}", asked.display()))?;
        let scratch = tempfile::tempdir_in(&asked);
        let scratch = scratch.context(|| format!("write in {}", asked.display()))?;
        let folder = scratch.path().to_owned();
        let kept = if plan.keep { asked.clone() } else { folder.clone() };
        let mut notes = Vec::new();
        let timer = Timer::build(&folder).map_err(|why| {
            notes.push(format!(
                "the time inside io_submit was not measured: {why}; apt install gcc libc6-dev"
            ));
        });
        Ok(Self {
            plan,
            progress,
            data: TestFile::new(kept.join("nowait-bench.data"), plan.keep),
            fresh: TestFile::new(folder.join("nowait-bench.fresh"), false),
            tools: Tools {
                preload: plan.preload.clone(),
                timer: timer.ok(),
                folder,
                kept,
                drop_caches: plan.drop_caches,
                python: absolute(&plan.python)?,
            },
            failed: BTreeMap::new(),
            refused: BTreeSet::new(),
            skipped: Vec::new(),
            notes,
            _removed_on_drop: scratch,
        })
    }

    /// Leaves the cases whose programs are there; the others are rows of the overview.
    fn leave_possible(&mut self, cases: &[Case<Job>]) -> Vec<Case<Job>> {
        let mut possible = Vec::new();
        for case in cases {
            let load = case.subjects[0].job.load;
            match need::lack(load, &self.tools.python, self.plan.install) {
                None => possible.push(case.clone()),
                Some(Lack { why, install }) => {
                    self.notes.push(format!("{} was skipped: {why}; {install}", case.name));
                    let (case, engine) = (case.name, "all");
                    self.skipped.push(Skipped { case, engine, why, install });
                }
            }
        }
        possible
    }

    /// Measures a case; `None` if no run of it succeeded.
    fn measure_case(&mut self, case: &Case<Job>) -> Result<Option<CaseResults>> {
        let (load, size_bytes) = (case.subjects[0].job.load, self.plan.extent.size_bytes);
        if let Err(why) = run::prepare(load, &self.tools, &self.data, size_bytes, self.progress) {
            interrupt::check()?;
            self.failed.insert((case.name, "all"), why.to_string());
            return Ok(None);
        }
        let one = std::slice::from_ref(case);
        let rounds = self.plan.extent.rounds;
        let runs = runner::measure(self.progress, one, rounds, |case, subject, round| {
            Ok(self.run_unless_failed(case, subject, round))
        })?;
        let runs = runs.into_iter().next().unwrap_or_default();
        let runs = runs.only(|subject| !self.failed.contains_key(&(case.name, subject)));
        if runs.is_empty() {
            return Ok(None);
        }
        let Extent { rounds, runtime, size_bytes } = self.plan.extent;
        let seconds = units::digits(runtime.as_secs_f64());
        let size = units::bytes(size_bytes as f64);
        let how = format!("{rounds} rounds of {seconds} s on {size}.");
        let params = json!({ "overview": overview::names(case.columns) });
        Ok(Some(CaseResults { how, ..CaseResults::new(case, runs, params) }))
    }

    fn run_unless_failed(
        &mut self,
        case: &Case<Job>,
        subject: &Subject<Job>,
        round: usize,
    ) -> Option<Sample> {
        let place = (case.name, subject.name);
        if self.failed.contains_key(&place) {
            return None;
        }
        let run = Run {
            tools: &self.tools,
            job: &subject.job,
            data: &self.data,
            fresh: &self.fresh,
            size_bytes: self.plan.extent.size_bytes,
            runtime: self.plan.extent.runtime,
            seed: round as u64 + 1,
        };
        match run.make() {
            Ok(sample) => Some(sample),
            Err(_) if interrupt::happened() => None,
            Err(error) => {
                self.failed.insert(place, error.to_string());
                let way = subject.job.way;
                if way.mode == Mode::Uring && way.forbids_uring {
                    self.refused.insert(place);
                }
                None
            }
        }
    }

    fn finish(mut self, cases: Vec<CaseResults>) -> Measurement {
        let (plan, Extent { rounds, runtime, size_bytes }) = (self.plan, self.plan.extent);
        let runtime_s = runtime.as_secs_f64();
        let quick = runtime_s < PUBLISHED_S || rounds < verdict::ROUNDS_MIN;
        if quick {
            self.notes.push("the runs are short or few: not to be published".to_owned());
        }
        for (case, engine) in &self.refused {
            let why = self.failed.remove(&(*case, *engine)).unwrap_or_default();
            let why = format!("refused by the filter ({why})");
            self.notes.push(format!("{case}, {engine}: {why}"));
            let install = String::new();
            self.skipped.push(Skipped { case, engine, why, install });
        }
        let failed: Vec<String> = self
            .failed
            .into_iter()
            .map(|((case, subject), why)| format!("case {case}, {subject}: {why}"))
            .collect();
        self.notes.extend(failed.iter().map(|why| format!("failed: {why}")));
        let params = json!({
            "rounds": rounds,
            "runtime_s": runtime_s,
            "size_bytes": size_bytes,
            "quick": quick,
            "folder": plan.folder.display().to_string(),
            "caches_dropped": plan.drop_caches,
            "page_cache": cache::state(plan.drop_caches),
            "skipped": self.skipped,
        });
        let host = Host::describe(&plan.folder, "not used");
        let before = overview::text(&cases, &self.skipped);
        Measurement {
            pairs: Pairs::With(&[ITSELF, cases::URING, ITSELF_POSIX]),
            notes: self.notes,
            failed,
            words: (before, ""),
            ..Measurement::new("programs", host, params, cases)
        }
    }
}

/// Says what the machine itself adds to a longest hold-up.
fn gap_note(period: Duration) -> String {
    let longest = units::time_us(gap::longest(period).as_secs_f64() * 1e6);
    let seconds = units::digits(period.as_secs_f64());
    format!(
        "before the first run, threads that only looked at the clock, as many as processors, did \
         not run for up to {longest} within {seconds} s: what the machine adds to a longest \
         hold-up under a load that fills it"
    )
}

/// Returns a path that another working folder does not change.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).context(|| path.display().to_string())
}
