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
/// The command that carries out a run, whatever its workload is.
pub(crate) const RUN_COMMAND: &str = "aio-stress";

/// What to measure, and where.
pub(crate) struct Plan {
    pub(crate) workload: &'static str,
    pub(crate) rounds: usize,
    pub(crate) runtime: Duration,
    pub(crate) device: PathBuf,
    pub(crate) size_bytes: u64,
    pub(crate) drop_caches: bool,
    pub(crate) keep: bool,
    pub(crate) overwrite: bool,
    pub(crate) dist: Option<PathBuf>,
}

/// A measurement under way.
pub(crate) struct Suite<'a> {
    plan: &'a Plan,
    device: Device,
    outcome: tempfile::NamedTempFile,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Libraries by engine.
    libraries: BTreeMap<&'static str, PathBuf>,
    /// Engines that do not work here, and why.
    unusable: BTreeMap<&'static str, String>,
    generation: u32,
    notes: Vec<String>,
    interrupted: bool,
}

/// Prepares the device, measures the cases that `make` makes for it, and puts all together.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes. When the user asked to stop, there is a
/// result of what has been measured.
pub(crate) fn measure(
    plan: &Plan,
    make: impl FnOnce(&Path) -> Result<Vec<Case>>,
) -> Result<WorkloadResults> {
    let mut suite = Suite::begin(plan)?;
    let cases = make(&suite.device.path)?;
    let measured = suite.measure(cases)?;
    Ok(suite.finish(measured))
}

impl<'a> Suite<'a> {
    /// Prepares the device.
    pub(crate) fn begin(plan: &'a Plan) -> Result<Self> {
        interrupt::install();
        let progress = Progress::new(0);
        let laid_out = |written| progress.laying_out(written, plan.size_bytes);
        let (size_bytes, keep, overwrite) = (plan.size_bytes, plan.keep, plan.overwrite);
        let how = Use { size_bytes, keep, overwrite, progress: &laid_out };
        let device = Device::prepare(&plan.device, how)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The program calls itself in the way it was called, up to the name of the command.
        let own = |argument: &OsString| argument != plan.workload;
        let before = std::env::args_os().skip(1).take_while(own);
        Ok(Self {
            plan,
            device,
            outcome: tempfile::NamedTempFile::new().context(|| "temporary file".to_owned())?,
            program: std::env::current_exe().context(|| "find this program".to_owned())?,
            arguments: before.chain([RUN_COMMAND, "--one"].map(OsString::from)).collect(),
            libraries: BTreeMap::new(),
            unusable: BTreeMap::new(),
            // Larger than that of any run before on the same file.
            generation: since.as_secs() as u32,
            notes: Vec::new(),
            interrupted: false,
        })
    }

    /// Measures cases, until the user asks to stop.
    pub(crate) fn measure(&mut self, cases: Vec<Case>) -> Result<Vec<CaseResults>> {
        let runs: usize = cases.iter().map(|case| case.subjects.len() * self.plan.rounds).sum();
        let progress = Progress::new(runs as u64);
        progress.start_runs();
        let mut measured = Vec::new();
        for case in cases {
            if self.interrupted {
                break;
            }
            measured.push(self.measure_case(case, &progress)?);
        }
        measured.retain(|case| case.runs.iter().any(|(_, samples)| !samples.is_empty()));
        Ok(measured)
    }

    /// Runs the subjects of a case by turns, the order reversed each round. A round that the user
    /// interrupts does not count.
    fn measure_case(&mut self, case: Case, progress: &Progress) -> Result<CaseResults> {
        let mut runs: Vec<Vec<Sample>> = vec![Vec::new(); case.subjects.len()];
        for round in 0..self.plan.rounds {
            for place in 0..case.subjects.len() {
                let last = case.subjects.len() - 1;
                let index = if round % 2 == 0 { place } else { last - place };
                let subject = &case.subjects[index];
                progress.start(case.name, subject.name, round);
                match self.run_if_usable(&case, subject, round) {
                    Err(_) if interrupt::check().is_err() => self.interrupted = true,
                    Err(error) => return Err(error),
                    Ok(sample) => runs[index].extend(sample),
                }
                if self.interrupted {
                    runs.iter_mut().for_each(|samples| samples.truncate(round));
                    return Ok(Self::results(case, runs));
                }
                progress.finish_run();
            }
        }
        Ok(Self::results(case, runs))
    }

    fn results(case: Case, runs: Vec<Vec<Sample>>) -> CaseResults {
        let names = case.subjects.iter().map(|subject| subject.name);
        let runs = names.zip(runs).filter(|(_, samples)| !samples.is_empty()).collect();
        CaseResults { case, runs }
    }

    /// Runs a subject, unless its engine does not work here.
    fn run_if_usable(
        &mut self,
        case: &Case,
        subject: &Subject,
        round: usize,
    ) -> Result<Option<Sample>> {
        let engine = subject.engine;
        if self.unusable.contains_key(engine.name) {
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
        let what = || format!("case {}, {}", case.name, subject.name);
        match self.run_once(case, subject, round) {
            Ok(sample) => Ok(Some(sample)),
            Err(error) if error.exit_code() == UNUSABLE as u8 => {
                self.unusable.insert(engine.name, error.to_string());
                Ok(None)
            }
            Err(error) => Err(BenchError::failed(format!("{}: {error}", what()))),
        }
    }

    /// Brings the kernel's cache into the state the case starts from, and runs.
    fn run_once(&mut self, case: &Case, subject: &Subject, round: usize) -> Result<Sample> {
        if case.cold && !self.device.in_memory {
            cache::make_cold(&self.device.path, self.plan.drop_caches)?;
        }
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
            runtime_ms: self.plan.runtime.as_millis() as u64,
            seed: round as u64 + 1,
            generation: self.generation,
            outcome: self.outcome.path().to_owned(),
        };
        let text = serde_json::to_string(&job).map_err(|e| BenchError::failed(e.to_string()))?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(text);
        let finished = launch::run(&mut command, self.plan.runtime + GRACE)?;
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
        for (engine, why) in &self.unusable {
            self.notes.push(format!("{engine} was left out: {why}"));
        }
        if !plan.drop_caches && !self.device.in_memory {
            self.notes.push("only the pages of the test file were dropped before a run".to_owned());
        }
        if self.interrupted {
            self.notes.push("interrupted: only rounds that were whole are in it".to_owned());
        }
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
        }
    }

    /// Notes that a part could not be measured, or that the user asked to stop in it.
    pub(crate) fn leave_out(&mut self, part: &str, why: &BenchError) {
        if interrupt::check().is_err() {
            self.interrupted = true;
        } else {
            self.notes.push(format!("{part} was left out: {why}"));
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
