//! The suite of a workload: it runs every subject of every case, each run in a process of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nowait_harness::suite::{Description, Run, Session, Suite};
use nowait_peers::job::{Job, Work};
use serde_json::{Value, json};

use super::args::{SuiteDef, WorkloadArgs};
use super::device::{Device, LaidOut, MEMORY, direct_block_bytes};
use super::parts;
use super::program::Program;
use super::recipe::Recipe;
use crate::cache;
use crate::case::Case;
use crate::error::{Failure, Result};
use crate::measurement::CaseResults;
use crate::metric::Sample;
use crate::runs::Runs;
use crate::units;

const MEMORY_BYTES_MAX: u64 = 256 << 20;

pub(crate) struct Workload {
    suite: &'static SuiteDef,
    args: WorkloadArgs,
    drop_caches: bool,
    /// The files on the device; `memory`: the files of the cases that always work in memory.
    device: Option<LaidOut>,
    memory: Option<LaidOut>,
    program: Program,
    generation: u32,
}

impl Workload {
    pub(crate) fn new(suite: &'static SuiteDef, args: WorkloadArgs) -> Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            drop_caches: !args.keep_caches && cache::can_drop(),
            suite,
            args,
            device: None,
            memory: None,
            program: Program::new()?,
            // The generation should differ from the generation of each earlier run on the same
            // file.
            generation: since.as_secs() as u32,
        })
    }

    fn files(&self, recipe: &Recipe) -> Result<&LaidOut> {
        let files = if recipe.in_memory { &self.memory } else { &self.device };
        files.as_ref().ok_or_else(|| Failure::new("no file was laid out"))
    }

    fn prepare_memory(&mut self, cases: &mut Vec<Case<Recipe>>, session: &mut Session) {
        let bytes = session.extent.size_bytes.min(MEMORY_BYTES_MAX);
        let jobs = jobs(cases, true);
        if jobs.is_empty() {
            return;
        }
        let mut args = WorkloadArgs { device: MEMORY.into(), ..self.args.clone() };
        args.measure.keep = false;
        match LaidOut::prepare(&args, self.suite.apart, bytes, &jobs, &session.progress) {
            Ok(laid_out) => self.memory = Some(laid_out),
            Err(error) => drop(
                session.leave_possible(cases, |_, subject| subject.job.in_memory.then_some(&error)),
            ),
        }
    }
}

fn jobs(cases: &[Case<Recipe>], in_memory: bool) -> Vec<Recipe> {
    let jobs = cases.iter().flat_map(|case| &case.subjects).map(|subject| subject.job);
    jobs.filter(|job| job.in_memory == in_memory).collect()
}

impl Suite for Workload {
    type Job = Recipe;

    fn is_case_by_case(&self) -> bool {
        self.suite.apart
    }

    fn prepare(&mut self, cases: &mut Vec<Case<Recipe>>, session: &mut Session) -> Result<()> {
        let bytes = session.extent.size_bytes;
        let (args, apart, jobs) = (&self.args, self.suite.apart, jobs(cases, false));
        let laid_out = LaidOut::prepare(args, apart, bytes, &jobs, &session.progress)?;
        let is_one_file = apart && laid_out.device.path == laid_out.write;
        session.leave_possible(cases, |case, _| {
            let writes = case.subjects.iter().any(|subject| subject.job.work.writes());
            let path = laid_out.device.path.display();
            (is_one_file && writes).then(|| format!("it writes, and {path} is no file"))
        });
        require_direct(cases, &laid_out.device.path)?;
        self.device = Some(laid_out);
        self.prepare_memory(cases, session);
        Ok(())
    }

    fn run(&mut self, it: Run<'_, Recipe>, session: &mut Session) -> Result<Sample> {
        let recipe = it.subject.job;
        let Recipe { engine, backend, work, sync, cold, set, pool, files, .. } = recipe;
        let LaidOut { device, write, size_bytes, .. } = self.files(&recipe)?;
        let Device { path: read, in_memory, .. } = device;
        let (path, other) = if work.writes() { (write, read) } else { (read, write) };
        if cold && !in_memory {
            cache::make_cold(path, self.drop_caches)?;
        }
        let job = Job {
            engine: engine.name.to_owned(),
            backend,
            work,
            sync,
            paths: parts::paths(path, files),
            pristine: self.suite.apart,
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
        let size = |bytes: u64| units::bytes(bytes as f64);
        let how = match self.suite.apart {
            true => format!("On {}, our pool {}.", size(set_bytes), size(pool_bytes)),
            false => String::new(),
        };
        CaseResults { how, ..CaseResults::new(case, runs, params) }
    }

    fn describe(&mut self, _results: &[CaseResults], session: &mut Session) -> Description {
        let device = self.device.as_ref();
        if !self.drop_caches && device.is_some_and(|files| !files.device.in_memory) {
            let note = "only the pages of the test file were dropped before a run";
            session.notes.push(note.to_owned());
        }
        session.notes.extend(self.suite.note.map(|note| note()));
        let name = self.args.device.display().to_string();
        let how = session.how();
        let before = format!("{} of {name}.\n\n", how.trim_end_matches('.'));
        let params = json!({
            "device": name,
            "caches_dropped": self.drop_caches,
            "page_cache": cache::state(self.drop_caches),
        });
        let place = device.map_or(Path::new("."), |files| &files.device.path);
        Description {
            pairs: self.suite.pairs,
            words: (before, "`null` is the harness alone. "),
            ..Description::new(self.suite.name, place, params)
        }
    }
}

fn is_direct(case: &Case<Recipe>) -> bool {
    case.subjects.iter().all(|subject| subject.job.engine.direct && !subject.job.in_memory)
}

fn require_direct(cases: &[Case<Recipe>], path: &Path) -> Result<()> {
    if !cases.iter().all(is_direct) || direct_block_bytes(path).is_some() {
        return Ok(());
    }
    let path = path.display();
    let message = format!("{path}: the file system refuses O_DIRECT; name another --device");
    Err(Failure::new(message))
}
