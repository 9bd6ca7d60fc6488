//! Runs every subject of every case, each in a process of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nowait_harness::suite::{Description, Run, Session, Suite};
use nowait_peers::job::{Job, Work};
use serde_json::{Value, json};

use super::device::{LaidOut, MEMORY, direct_block_bytes};
use super::parts;
use super::program::Program;
use super::recipe::Recipe;
use crate::bottleneck;
use crate::cache;
use crate::case::Case;
use crate::error::{BenchError, Result};
use crate::measurement::{CaseResults, Pairs};
use crate::metric::{Metric, Sample};
use crate::runs::Runs;
use crate::units;

/// A guess of the time of a run beside its runtime, in seconds, until runs show it: a process,
/// empty caches, and an fsync.
const START_S: f64 = 0.15;
const COLD_S: f64 = 0.15;
const SYNC_S: f64 = 0.15;
/// The largest file in memory beside a device.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The device, and how the workload uses it.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) workload: &'static str,
    pub(crate) device: PathBuf,
    /// The advice if the size is too much.
    pub(crate) smaller: &'static str,
    pub(crate) drop_caches: bool,
    pub(crate) keep: bool,
    pub(crate) overwrite: bool,
    /// Writes go to another file than reads; a case ends before the next begins.
    pub(crate) apart: bool,
    pub(crate) pairs: Pairs,
    /// A note for readers of the report.
    pub(crate) note: Option<fn() -> String>,
}

/// A workload on its files.
pub(crate) struct Workload {
    plan: Plan,
    /// The files on the device, and those of cases that are in memory whatever the device is.
    device: Option<LaidOut>,
    memory: Option<LaidOut>,
    program: Program,
    generation: u32,
    /// Cases whose requests reach a disk, and their threads.
    on_disk: BTreeMap<&'static str, usize>,
}

impl Workload {
    pub(crate) fn new(plan: Plan) -> Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            plan,
            device: None,
            memory: None,
            program: Program::new()?,
            // Larger than that of any run before on the same file.
            generation: since.as_secs() as u32,
            on_disk: BTreeMap::new(),
        })
    }

    /// Returns the files of a case.
    fn files(&self, recipe: &Recipe) -> Result<&LaidOut> {
        let files = if recipe.in_memory { &self.memory } else { &self.device };
        files.as_ref().ok_or_else(|| BenchError::failed("no file was laid out"))
    }

    /// Lays out the files of the cases that are in memory, or leaves these cases out.
    fn prepare_memory(&mut self, cases: &mut Vec<Case<Recipe>>, session: &mut Session) {
        let is_in_memory = |case: &Case<Recipe>| case.subjects[0].job.in_memory;
        let (plan, bytes) = (&self.plan, session.extent.size_bytes.min(MEMORY_BYTES_MAX));
        let jobs = jobs(cases, true);
        if jobs.is_empty() {
            return;
        }
        let plan = Plan { device: MEMORY.into(), keep: false, ..plan.clone() };
        match LaidOut::prepare(&plan, bytes, &jobs, &session.progress) {
            Ok(laid_out) => self.memory = Some(laid_out),
            Err(error) => cases.retain(|case| {
                let note = format!("{} was left out: {error}", case.name);
                session.notes.extend(is_in_memory(case).then_some(note));
                !is_in_memory(case)
            }),
        }
    }
}

/// Returns the jobs of the cases that are in memory, or of the others.
fn jobs(cases: &[Case<Recipe>], in_memory: bool) -> Vec<Recipe> {
    let jobs = cases.iter().flat_map(|case| &case.subjects).map(|subject| subject.job);
    jobs.filter(|job| job.in_memory == in_memory).collect()
}

impl Suite for Workload {
    type Job = Recipe;

    fn is_case_by_case(&self) -> bool {
        self.plan.apart
    }

    fn prepare(&mut self, cases: &mut Vec<Case<Recipe>>, session: &mut Session) -> Result<()> {
        let bytes = session.extent.size_bytes;
        let laid_out = LaidOut::prepare(&self.plan, bytes, &jobs(cases, false), &session.progress)?;
        if self.plan.apart && laid_out.read == laid_out.write {
            let all = cases.len();
            cases.retain(|case| case.subjects.iter().all(|subject| !subject.job.work.writes()));
            let (count, path) = (all - cases.len(), laid_out.read.display());
            let note = format!("{count} cases that write were left out: {path} is no file");
            session.notes.push(note);
        }
        require_direct(cases, &laid_out.read)?;
        self.device = Some(laid_out);
        self.prepare_memory(cases, session);
        Ok(())
    }

    fn planned_s(&self, case: &Case<Recipe>, session: &Session) -> f64 {
        let recipe = &case.subjects[0].job;
        let synced = case.columns.contains(&Metric::BytesPerSSynced);
        let cold = recipe.cold && self.files(recipe).is_ok_and(|files| !files.in_memory);
        let parts = [(true, START_S), (cold, COLD_S), (synced, SYNC_S)];
        let parts = parts.into_iter().filter(|(is, _)| *is).map(|(_, seconds)| seconds);
        session.extent.runtime.as_secs_f64() + parts.sum::<f64>()
    }

    /// Brings the kernel's cache into the state the case starts from, and runs.
    fn run(&mut self, it: Run<'_, Recipe>, session: &mut Session) -> Result<Sample> {
        let recipe = it.subject.job;
        let Recipe { engine, backend, work, sync, cold, set, pool, files, .. } = recipe;
        let LaidOut { read, write, in_memory, size_bytes, .. } = self.files(&recipe)?;
        let (path, other) = if work.writes() { (write, read) } else { (read, write) };
        if cold && !in_memory {
            cache::make_cold(path, self.plan.drop_caches)?;
        }
        let job = Job {
            engine: engine.name.to_owned(),
            backend,
            work,
            sync,
            paths: parts::paths(path, files),
            pristine: self.plan.apart,
            other: (other != path).then(|| other.clone()),
            set_bytes: set.of(*size_bytes),
            pool_bytes: pool.of(*size_bytes),
            runtime_ms: session.extent.runtime.as_millis() as u64,
            seed: it.seed(),
            generation: self.generation.wrapping_add(1).max(1),
            outcome: PathBuf::new(),
        };
        self.generation = job.generation;
        self.program.run(job)
    }

    fn results(&mut self, case: &Case<Recipe>, runs: Runs, session: &mut Session) -> CaseResults {
        let recipe = &case.subjects[0].job;
        if is_direct(case) && self.files(recipe).is_ok_and(|files| !files.lies_in_memory()) {
            let threads = if let Work::Transfer(it) = recipe.work { it.threads } else { 1 };
            self.on_disk.insert(case.name, threads);
        }
        let work: BTreeMap<&str, Value> =
            case.subjects.iter().map(|subject| (subject.name, subject.job.params())).collect();
        let size_bytes = session.extent.size_bytes;
        let [set_bytes, pool_bytes] = [recipe.set, recipe.pool].map(|it| it.of(size_bytes));
        let mut params = json!({
            "sync": recipe.sync,
            "runtime_s": session.extent.runtime.as_secs_f64(),
            "set_bytes": set_bytes,
            "pool_bytes": pool_bytes,
            "work": work,
        });
        if let Work::Transfer(transfer) = recipe.work {
            params["write"] = (transfer.write_percent > 0).into();
            params["depth"] = transfer.depth.into();
            params["block_bytes"] = transfer.block_bytes.into();
        }
        if let Some(family) = recipe.family {
            params["family"] = family.into();
        }
        let size = |bytes: u64| units::bytes(bytes as f64);
        let how = match self.plan.apart {
            true => format!("On {}, our pool {}.", size(set_bytes), size(pool_bytes)),
            false => String::new(),
        };
        CaseResults { how, ..CaseResults::new(case, runs, params) }
    }

    fn describe(&mut self, results: &[CaseResults], session: &mut Session) -> Description {
        let limited = bottleneck::limited_by_disk(results, &self.on_disk);
        session.notes.extend(bottleneck::note(&limited));
        let plan = &self.plan;
        let device = self.device.as_ref();
        if !plan.drop_caches && device.is_some_and(|files| !files.in_memory) {
            let note = "only the pages of the test file were dropped before a run";
            session.notes.push(note.to_owned());
        }
        session.notes.extend(plan.note.map(|note| note()));
        let name = plan.device.display().to_string();
        let how = session.how();
        let before = format!("{} of {name}.\n\n", how.trim_end_matches('.'));
        let params = json!({
            "device": name,
            "caches_dropped": plan.drop_caches,
            "page_cache": cache::state(plan.drop_caches),
            "limited_by_disk": limited,
        });
        let place = device.map_or(Path::new("."), |files| &files.read);
        Description {
            pairs: plan.pairs,
            words: (before, "`null` is the harness alone. "),
            ..Description::new(plan.workload, place, params)
        }
    }
}

/// Returns `true` if all requests of a case go past the kernel's page cache.
fn is_direct(case: &Case<Recipe>) -> bool {
    case.subjects.iter().all(|subject| subject.job.engine.direct && !subject.job.in_memory)
}

/// Fails if no case can run without `O_DIRECT`, and the file system refuses that.
fn require_direct(cases: &[Case<Recipe>], path: &Path) -> Result<()> {
    if !cases.iter().all(is_direct) || direct_block_bytes(path).is_some() {
        return Ok(());
    }
    let path = path.display();
    let message = format!("{path}: the file system refuses O_DIRECT; name another --device");
    Err(BenchError::failed(message))
}
