//! Runs every subject of every case, each in a process of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::case::{Case, Subject};
use super::device::{Device, Use};
use super::job::{self, Job, Outcome};
use super::results::{CaseResults, WorkloadResults};
use crate::cache;
use crate::error::{BenchError, Context, Result};
use crate::host::Host;
use crate::interrupt;
use crate::launch;
use crate::metric::{Metric, Sample};
use crate::progress::Progress;

/// What a run may take beyond its runtime: starting, and writing back.
const GRACE: Duration = Duration::from_mins(3);
/// The exit code of a run whose engine does not work here.
const UNUSABLE: i32 = 2;
/// What a run costs beside its runtime, until it is known better, in seconds: a process, empty
/// caches, and an fsync of what was written.
const START_S: f64 = 0.15;
const COLD_S: f64 = 0.15;
const SYNC_S: f64 = 0.15;
/// The command that carries out a run, whatever its workload is.
pub(crate) const RUN_COMMAND: &str = "aio-stress";

/// What to measure, and where.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) workload: &'static str,
    pub(crate) rounds: usize,
    pub(crate) runtime: Duration,
    pub(crate) device: PathBuf,
    pub(crate) size_bytes: u64,
    /// What helps where that is too much.
    pub(crate) smaller: &'static str,
    pub(crate) drop_caches: bool,
    pub(crate) keep: bool,
    pub(crate) overwrite: bool,
    pub(crate) dist: Option<PathBuf>,
}

/// A measurement under way.
pub(crate) struct Suite<'a> {
    plan: &'a Plan,
    progress: &'a Progress,
    device: Device,
    outcome: tempfile::NamedTempFile,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Libraries by engine.
    libraries: BTreeMap<&'static str, PathBuf>,
    /// Engines that do not work here, and why.
    unusable: BTreeMap<&'static str, String>,
    /// Runs that failed, by case and subject: they are not repeated.
    failed: BTreeMap<(&'static str, &'static str), String>,
    generation: u32,
    notes: Vec<String>,
    interrupted: bool,
}

/// Prepares the device, measures the cases, and puts all together.
///
/// # Errors
/// The device cannot be used. When the user asked to stop or a run failed, there is a result of
/// what has been measured.
pub(crate) fn measure(plan: &Plan, cases: Vec<Case>) -> Result<WorkloadResults> {
    let progress = Progress::new();
    let mut suite = Suite::begin(plan, &progress)?;
    suite.expect(&cases);
    progress.start_runs();
    let measured = suite.measure(cases);
    Ok(suite.finish(measured))
}

impl<'a> Suite<'a> {
    /// Prepares the device.
    pub(crate) fn begin(plan: &'a Plan, progress: &'a Progress) -> Result<Self> {
        interrupt::install();
        let laid_out = |written| progress.laying_out(written, plan.size_bytes);
        let Plan { size_bytes, smaller, keep, overwrite, .. } = *plan;
        let how = Use { size_bytes, smaller, keep, overwrite, progress: &laid_out };
        let device = Device::prepare(&plan.device, how)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The program calls itself in the way it was called, up to the name of the command.
        let own = |argument: &OsString| argument != plan.workload;
        let before = std::env::args_os().skip(1).take_while(own);
        Ok(Self {
            plan,
            progress,
            device,
            outcome: tempfile::NamedTempFile::new().context(|| "temporary file".to_owned())?,
            program: std::env::current_exe().context(|| "find this program".to_owned())?,
            arguments: before.chain([RUN_COMMAND, "--one"].map(OsString::from)).collect(),
            libraries: BTreeMap::new(),
            unusable: BTreeMap::new(),
            failed: BTreeMap::new(),
            // Larger than that of any run before on the same file.
            generation: since.as_secs() as u32,
            notes: Vec::new(),
            interrupted: false,
        })
    }

    /// Says which runs will come, for the time left.
    pub(crate) fn expect(&self, cases: &[Case]) {
        for case in cases {
            let planned_s = case.runtime(self.plan.runtime).as_secs_f64() + self.overhead_s(case);
            for subject in &case.subjects {
                self.progress.expect(case.name, subject.name, self.plan.rounds, planned_s);
            }
        }
    }

    /// Returns what a run of a case costs beside its runtime, about.
    fn overhead_s(&self, case: &Case) -> f64 {
        let synced = case.columns.contains(&Metric::BytesPerSSynced);
        let cold = case.cold && !self.device.in_memory;
        START_S + if cold { COLD_S } else { 0.0 } + if synced { SYNC_S } else { 0.0 }
    }

    /// Measures cases, until the user asks to stop. One round of all of them follows the other: so
    /// there is something of each after the first, and the time left is known.
    pub(crate) fn measure(&mut self, cases: Vec<Case>) -> Vec<CaseResults> {
        let mut measured: Vec<CaseResults> = cases.into_iter().map(CaseResults::none).collect();
        for round in 0..self.plan.rounds {
            for case in &mut measured {
                if self.interrupted {
                    break;
                }
                self.measure_round(case, round);
            }
        }
        let measured = measured
            .into_iter()
            .map(|CaseResults { case, runs }| CaseResults { case, runs: runs.without_empty() });
        measured.filter(|case| !case.runs.is_empty()).collect()
    }

    /// Runs the subjects of a case by turns, the order reversed each round. A round that the user
    /// interrupts does not count; a subject that fails has no figures in this case.
    fn measure_round(&mut self, results: &mut CaseResults, round: usize) {
        let CaseResults { case, runs } = results;
        for place in 0..case.subjects.len() {
            let index =
                if round.is_multiple_of(2) { place } else { case.subjects.len() - 1 - place };
            let subject = &case.subjects[index];
            self.progress.start(case.name, subject.name, round);
            match self.run_if_usable(case, subject, round) {
                _ if interrupt::happened() => {
                    self.interrupted = true;
                    runs.truncate(round);
                    return;
                }
                Ok(sample) => sample.into_iter().for_each(|sample| runs.push(index, sample)),
                Err(error) => {
                    runs.clear(index);
                    let what = format!("case {}, {}", case.name, subject.name);
                    self.failed.insert((case.name, subject.name), format!("{what}: {error}"));
                }
            }
            self.progress.finish_run();
        }
    }

    /// Runs a subject, unless its engine does not work here.
    fn run_if_usable(
        &mut self,
        case: &Case,
        subject: &Subject,
        round: usize,
    ) -> Result<Option<Sample>> {
        let engine = subject.engine;
        let failed = self.failed.contains_key(&(case.name, subject.name));
        if failed || self.unusable.contains_key(engine.name) {
            return Ok(None);
        }
        if !self.libraries.contains_key(engine.name) {
            match engine.library(self.plan.dist.as_deref()) {
                Ok(None) => {}
                Ok(Some(library)) => {
                    self.libraries.insert(engine.name, library);
                }
                Err(error) => {
                    self.unusable.insert(engine.name, error.to_string());
                    return Ok(None);
                }
            }
        }
        match self.run_once(case, subject, round) {
            Ok(sample) => Ok(Some(sample)),
            Err(error) if error.exit_code() == UNUSABLE as u8 => {
                self.unusable.insert(engine.name, error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the kernel's cache into the state the case starts from, and runs.
    fn run_once(&mut self, case: &Case, subject: &Subject, round: usize) -> Result<Sample> {
        if case.cold && !self.device.in_memory {
            cache::make_cold(&self.device.path, self.plan.drop_caches)?;
        }
        let runtime = case.runtime(self.plan.runtime);
        self.generation = self.generation.wrapping_add(1).max(1);
        let job = Job {
            engine: subject.engine.name.to_owned(),
            library: self.libraries.get(subject.engine.name).cloned(),
            work: subject.work,
            sync: case.sync,
            path: self.device.path.clone(),
            set_bytes: self.plan.size_bytes,
            // Room for all of it, as in the kernel's.
            pool_bytes: self.plan.size_bytes / 8 * 9,
            runtime_ms: runtime.as_millis() as u64,
            seed: round as u64 + 1,
            generation: self.generation,
            outcome: self.outcome.path().to_owned(),
        };
        let text = serde_json::to_string(&job).map_err(|e| BenchError::failed(e.to_string()))?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(text);
        let finished = launch::run(&mut command, runtime + GRACE)?;
        if !finished.status.success() {
            let message = finished.stderr.trim().to_owned();
            return Err(match finished.status.code() {
                Some(UNUSABLE) => BenchError::usage(message),
                _ => BenchError::failed(message),
            });
        }
        let what = || "outcome".to_owned();
        let text = std::fs::read_to_string(self.outcome.path()).context(what)?;
        let outcome: Outcome =
            serde_json::from_str(&text).map_err(|e| BenchError::failed(format!("outcome: {e}")))?;
        let mut sample = job::sample(&outcome);
        let busy = finished.usage.other_us / finished.usage.wall_us;
        sample.insert(Metric::OtherBusyCores, busy);
        sample.insert(Metric::PageCacheGrowthBytes, finished.usage.cache_growth_bytes);
        Ok(sample)
    }

    /// Describes the machine, and puts all together.
    pub(crate) fn finish(mut self, cases: Vec<CaseResults>) -> WorkloadResults {
        let plan = self.plan;
        self.interrupted |= interrupt::happened();
        for (engine, why) in &self.unusable {
            self.notes.push(format!("{engine} was left out: {why}"));
        }
        if !plan.drop_caches && !self.device.in_memory {
            self.notes.push("only the pages of the test file were dropped before a run".to_owned());
        }
        if self.interrupted {
            self.notes.push("interrupted: only rounds that were whole are in it".to_owned());
        }
        let failed: Vec<String> = self.failed.into_values().collect();
        self.notes.extend(failed.iter().map(|why| format!("failed: {why}")));
        WorkloadResults {
            workload: plan.workload,
            host: Host::describe(&self.device.path, "not used"),
            device: plan.device.clone(),
            rounds: plan.rounds,
            runtime_s: plan.runtime.as_secs_f64(),
            size_bytes: plan.size_bytes,
            caches_dropped: plan.drop_caches,
            cases,
            notes: self.notes,
            interrupted: self.interrupted,
            failed,
        }
    }

    /// Takes over what failed, or cannot be done, on another device.
    pub(crate) fn join(&mut self, other: Suite<'_>) {
        self.unusable.extend(other.unusable);
        self.failed.extend(other.failed);
        self.interrupted |= other.interrupted;
    }

    /// Notes that a part could not be measured, or that the user asked to stop in it.
    pub(crate) fn leave_out(&mut self, part: &str, why: &BenchError) {
        if interrupt::check().is_err() {
            self.interrupted = true;
        } else {
            self.notes.push(format!("{part} was left out: {why}"));
        }
    }

    /// Notes that another part failed, unless the user has asked to stop.
    pub(crate) fn fail(&mut self, part: &'static str, subject: &'static str, why: &BenchError) {
        if interrupt::happened() {
            self.interrupted = true;
        } else {
            self.failed.insert((part, subject), format!("{part}, {subject}: {why}"));
        }
    }

    /// Returns where the test file is.
    pub(crate) fn path(&self) -> &Path {
        &self.device.path
    }

    /// Tells whether the user has asked to stop.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted
    }
}
