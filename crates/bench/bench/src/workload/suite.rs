//! Runs every subject of every case, each in a process of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use nowait_peers::job::{Backend, Job};
use nowait_peers::registry::{EngineDef, Library};
use serde_json::{Value, json};

use super::device::LaidOut;
use super::parts;
use super::program::Program;
use super::recipe::Recipe;
use crate::args::{Extent, found_in_dist};
use crate::cache;
use crate::case::{Case, Subject};
use crate::error::{BenchError, Result};
use crate::host::Host;
use crate::interrupt;
use crate::measurement::{CaseResults, Measurement};
use crate::metric::{Metric, Sample};
use crate::progress::Progress;
use crate::runner;
use crate::units;

/// A guess of the time of a run beside its runtime, in seconds, until runs show it: a process,
/// empty caches, and an fsync.
const START_S: f64 = 0.15;
const COLD_S: f64 = 0.15;
const SYNC_S: f64 = 0.15;

/// The cases to measure, and their files.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) workload: &'static str,
    pub(crate) extent: Extent,
    pub(crate) device: PathBuf,
    /// The advice if the size is too much.
    pub(crate) smaller: &'static str,
    pub(crate) drop_caches: bool,
    pub(crate) keep: bool,
    pub(crate) overwrite: bool,
    pub(crate) dist: Option<PathBuf>,
    /// Writes go to another file than reads; a case ends before the next begins.
    pub(crate) apart: bool,
}

/// The test files.
#[derive(Clone)]
pub(crate) struct Files {
    /// The file that is read, and the file that is written: two, or one.
    pub(crate) read: PathBuf,
    pub(crate) write: PathBuf,
    /// They lie in memory: caches have nothing to drop.
    pub(crate) in_memory: bool,
}

/// A running measurement.
pub(crate) struct Suite<'a> {
    plan: &'a Plan,
    progress: &'a Progress,
    files: Files,
    program: Program,
    /// Our `libaio.so.1`, once it was found.
    ours: Option<PathBuf>,
    /// Engines that do not work here, and why.
    unusable: BTreeMap<(&'static str, Backend), String>,
    /// Runs that failed, by case and subject: they are not repeated.
    failed: BTreeMap<(&'static str, &'static str), String>,
    generation: u32,
    notes: Vec<String>,
}

/// Prepares the device, measures the cases, and puts all together.
///
/// # Errors
/// The device cannot be used. When the user asked to stop or a run failed, there is a result of
/// what has been measured.
pub(crate) fn measure(plan: &Plan, mut cases: Vec<Case<Recipe>>) -> Result<Measurement> {
    let progress = Progress::new();
    let laid_out = LaidOut::prepare(plan, &cases, &progress)?;
    let Files { read, write, .. } = &laid_out.files;
    let mut suite = Suite::new(plan, laid_out.files.clone(), &progress)?;
    if plan.apart && read == write {
        let all = cases.len();
        cases.retain(|case| case.subjects.iter().all(|subject| !subject.job.work.writes()));
        let (count, path) = (all - cases.len(), read.display());
        suite.note(format!("{count} cases that write were left out: {path} is no file"));
    }
    suite.expect(&cases);
    progress.start_runs();
    let measured = match plan.apart {
        true => cases.chunks(1).flat_map(|case| suite.measure(case)).collect(),
        false => suite.measure(&cases),
    };
    Ok(suite.finish(measured))
}

impl<'a> Suite<'a> {
    /// Begins on files that are laid out.
    pub(crate) fn new(plan: &'a Plan, files: Files, progress: &'a Progress) -> Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            plan,
            progress,
            files,
            program: Program::new()?,
            ours: None,
            unusable: BTreeMap::new(),
            failed: BTreeMap::new(),
            // Larger than that of any run before on the same file.
            generation: since.as_secs() as u32,
            notes: Vec::new(),
        })
    }

    /// Announces the runs that will come, for the time left.
    pub(crate) fn expect(&self, cases: &[Case<Recipe>]) {
        let planned_s = |case: &Case<Recipe>| {
            let recipe = &case.subjects[0].job;
            let synced = case.columns.contains(&Metric::BytesPerSSynced);
            let cold = recipe.cold && !self.files.in_memory;
            let parts = [(true, START_S), (cold, COLD_S), (synced, SYNC_S)];
            let parts = parts.into_iter().filter(|(is, _)| *is).map(|(_, seconds)| seconds);
            recipe.runtime(self.plan.extent.runtime).as_secs_f64() + parts.sum::<f64>()
        };
        runner::expect(self.progress, cases, self.plan.extent.rounds, planned_s);
    }

    /// Measures cases, until the user asks to stop. A subject that fails has no figures in its
    /// case.
    pub(crate) fn measure(&mut self, cases: &[Case<Recipe>]) -> Vec<CaseResults> {
        let (progress, rounds) = (self.progress, self.plan.extent.rounds);
        let runs = runner::measure(progress, cases, rounds, |case, subject, round| {
            Ok(self.run_if_usable(case, subject, round))
        });
        let of = |(case, runs): (&Case<Recipe>, crate::runs::Runs)| {
            let runs = runs.only(|subject| !self.failed.contains_key(&(case.name, subject)));
            self.results(case, runs)
        };
        let measured = cases.iter().zip(runs.unwrap_or_default()).map(of);
        measured.filter(|case| !case.runs.is_empty()).collect()
    }

    fn results(&self, case: &Case<Recipe>, runs: crate::runs::Runs) -> CaseResults {
        let recipe = &case.subjects[0].job;
        let work: BTreeMap<&str, Value> =
            case.subjects.iter().map(|subject| (subject.name, subject.job.params())).collect();
        let runtime_s = recipe.runtime(self.plan.extent.runtime).as_secs_f64();
        let size_bytes = self.plan.extent.size_bytes;
        let [set_bytes, pool_bytes] = [recipe.set, recipe.pool].map(|it| it.of(size_bytes));
        let params = json!({
            "sync": recipe.sync,
            "runtime_s": runtime_s,
            "set_bytes": set_bytes,
            "pool_bytes": pool_bytes,
            "work": work,
        });
        let size = |bytes: u64| units::bytes(bytes as f64);
        let how = match self.plan.apart {
            true => format!("On {}, our pool {}.", size(set_bytes), size(pool_bytes)),
            false => String::new(),
        };
        CaseResults { how, ..CaseResults::new(case, runs, params) }
    }

    /// Runs a subject, unless its engine does not work here, or it failed before.
    fn run_if_usable(
        &mut self,
        case: &Case<Recipe>,
        subject: &Subject<Recipe>,
        round: usize,
    ) -> Option<Sample> {
        let Recipe { engine, backend, .. } = subject.job;
        let (engine, place) = ((engine.name, backend), (case.name, subject.name));
        if self.failed.contains_key(&place) || self.unusable.contains_key(&engine) {
            return None;
        }
        match self.run_once(subject, round) {
            Ok(sample) => return Some(sample),
            Err(_) if interrupt::happened() => {}
            Err(error) if error.is_usage() => {
                self.unusable.insert(engine, error.to_string());
            }
            Err(error) => {
                let what = format!("case {}, {}: {error}", case.name, subject.name);
                self.failed.insert(place, what);
            }
        }
        None
    }

    /// Brings the kernel's cache into the state the case starts from, and runs.
    fn run_once(&mut self, subject: &Subject<Recipe>, round: usize) -> Result<Sample> {
        let Recipe { engine, backend, work, sync, cold, set, pool, files, .. } = subject.job;
        let library = self.library(engine)?;
        let Files { read, write, in_memory } = &self.files;
        let (path, other) = if work.writes() { (write, read) } else { (read, write) };
        if cold && !in_memory {
            cache::make_cold(path, self.plan.drop_caches)?;
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        let size_bytes = self.plan.extent.size_bytes;
        self.program.run(Job {
            engine: engine.name.to_owned(),
            library,
            backend,
            work,
            sync,
            paths: parts::paths(path, files),
            pristine: self.plan.apart,
            other: (other != path).then(|| other.clone()),
            set_bytes: set.of(size_bytes),
            pool_bytes: pool.of(size_bytes),
            runtime_ms: subject.job.runtime(self.plan.extent.runtime).as_millis() as u64,
            seed: round as u64 + 1,
            generation: self.generation,
            outcome: PathBuf::new(),
        })
    }

    /// Returns the library that an engine loads: the one of the system, or ours.
    fn library(&mut self, engine: &EngineDef) -> Result<Option<PathBuf>> {
        let Some(whose) = engine.library() else { return Ok(None) };
        if whose == Library::System {
            return Ok(Some("libaio.so.1".into()));
        }
        if self.ours.is_none() {
            let found = found_in_dist(self.plan.dist.as_deref(), "lib/libaio.so.1");
            self.ours = Some(found.map_err(|error| BenchError::usage(error.to_string()))?);
        }
        Ok(self.ours.clone())
    }

    /// Describes the machine, and puts all together.
    pub(crate) fn finish(mut self, cases: Vec<CaseResults>) -> Measurement {
        let plan = self.plan;
        for ((engine, backend), why) in &self.unusable {
            self.notes.push(format!("{engine}{} was left out: {why}", with(*backend)));
        }
        if !plan.drop_caches && !self.files.in_memory {
            self.notes.push("only the pages of the test file were dropped before a run".to_owned());
        }
        if interrupt::happened() {
            self.notes.push("interrupted: the last round is not whole".to_owned());
        }
        let failed: Vec<String> = self.failed.into_values().collect();
        self.notes.extend(failed.iter().map(|why| format!("failed: {why}")));
        let (device, Extent { rounds, runtime, size_bytes }) = (plan.device.display(), plan.extent);
        let runtime_s = runtime.as_secs_f64();
        let (seconds, size) = (units::digits(runtime_s), units::bytes(size_bytes as f64));
        let params = json!({
            "rounds": rounds,
            "runtime_s": runtime_s,
            "size_bytes": size_bytes,
            "device": device.to_string(),
            "caches_dropped": plan.drop_caches,
            "page_cache": cache::state(plan.drop_caches),
        });
        let before = format!("{rounds} rounds of {seconds} s on {size} of {device}.\n\n");
        let host = Host::describe(&self.files.read, "not used");
        Measurement {
            notes: self.notes,
            failed,
            words: (before, "`null` is the harness alone. "),
            ..Measurement::new(plan.workload, host, params, cases)
        }
    }

    /// Takes over what failed, or cannot be done, on another device.
    pub(crate) fn join(&mut self, other: Suite<'_>) {
        self.unusable.extend(other.unusable);
        self.failed.extend(other.failed);
    }

    /// Notes what a reader must know.
    fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Notes that a part could not be measured, unless the user asked to stop in it.
    pub(crate) fn leave_out(&mut self, part: &str, why: &BenchError) {
        if !interrupt::happened() {
            self.notes.push(format!("{part} was left out: {why}"));
        }
    }
}

/// Returns what a note says behind the name of an engine.
fn with(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "",
        Backend::Uring => " with io_uring",
        Backend::Kaio => " without io_uring",
        Backend::Threads => " with threads alone",
    }
}
