//! The suite of all cases of fio. The suite writes the files, probes the ways, and makes or
//! verifies the runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nowait_harness::args::{DiskArgs, Extent};
use nowait_harness::busy::Busy;
use nowait_harness::error::{Failure, Result};
use nowait_harness::layout::{self, TestFile};
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::runs::Runs;
use nowait_harness::suite::{self, Description, Session, Suite};
use nowait_harness::{cache, interrupt, units};
use serde_json::json;
use tempfile::TempDir;

use super::args::Places;
use super::job::{FioCase, FioJob, Place, Rw, Start, Work, work};
use super::run::{Fio, Purpose, Run, Startup};
use super::verdict::{self, Limits};
use crate::workload::smallest_direct_block;

/// The assumed time of a run besides its runtime: flush and start-up.
const OVERHEAD: Duration = Duration::from_millis(1200);

/// A budget does not shorten runs below this time, because shorter runs have no useful figures.
const RUNTIME_MIN: Duration = Duration::from_millis(500);

/// A budget does not shorten the file below this size, because a run would read a smaller file
/// several times.
const SHORTENED_BYTES_MIN: u64 = 512 << 20;

const OTHER_WORK_CORES: f64 = 0.25;

/// If a case needs one of these ways and the way does not work, the measurement fails: the case
/// could not be compared.
const REQUIRED: [&str; 4] = ["system", "nowait", "posixaio", "nowait-posixaio"];

pub(crate) struct Plan {
    pub(crate) workload: &'static str,
    /// The total size of the files that a case has of its own and that exist before its runs.
    pub(crate) cached_bytes: u64,
    /// The size of the file that each run makes anew.
    pub(crate) fresh_bytes: u64,
    pub(crate) keep: bool,
    /// Shortens the file and the runs so that everything ends about within this time.
    pub(crate) budget: Option<Duration>,
    pub(crate) parity: Option<Parity>,
}

/// `bench parity` subtracts the start-up cost of fio with the system's library from the figures of
/// each engine. So the cost that nowait adds to the start of a process counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parity {
    pub(crate) busy: usize,
    pub(crate) verify: bool,
    pub(crate) limits: Limits,
}

pub(crate) struct FioSuite {
    plan: Plan,
    pub(crate) fio: Fio,
    begun: Instant,
    folders: Folders,
    drop_caches: bool,
    cold: TestFile,
    cold_bytes: u64,
    startups: BTreeMap<&'static str, Startup>,
    busy: Option<Busy>,
    runtime: Duration,
    case: Current,
}

#[derive(Default)]
struct Current {
    /// The case's own files; empty if the case uses the shared cold file.
    own: Vec<TestFile>,
    paths: Vec<PathBuf>,
    size_bytes: u64,
}

/// Without `--keep`, all files are in new folders, and dropping this value removes them. With
/// `--keep`, the shared file lies in the requested folder, for the next measurement.
struct Folders {
    asked: PathBuf,
    disk: TempDir,
    memory: Result<TempDir>,
}

impl Folders {
    fn make(asked: &Path, memory: &Path) -> Result<Self> {
        let memory = match layout::is_tmpfs(memory) {
            true => layout::scratch_in(memory),
            false => Err(Failure::new(format!("{} is no tmpfs", memory.display()))),
        };
        Ok(Self { asked: asked.to_owned(), disk: layout::scratch_in(asked)?, memory })
    }

    fn memory_is_usable(&self, bytes: u64) -> Result<()> {
        let memory = self.memory.as_ref().map_err(Failure::clone)?;
        layout::check_space(&memory.path().join("file"), bytes)
    }
}

impl FioSuite {
    pub(crate) fn new(
        plan: Plan,
        cases: &[FioCase],
        disk: &DiskArgs,
        places: &Places,
        extent: &Extent,
    ) -> Result<Self> {
        let mut subjects = cases.iter().flat_map(|case| &case.subjects);
        let preloads = subjects.any(|subject| subject.job.engine.preloads());
        let preload = preloads.then(|| places.preload()).transpose()?;
        let folders = Folders::make(&disk.dir, &places.tmpfs)?;
        let cold = if plan.keep { folders.asked.as_path() } else { folders.disk.path() };
        Ok(Self {
            fio: Fio::find(&places.fio, preload)?,
            begun: Instant::now(),
            drop_caches: disk.drops_caches(),
            cold: TestFile::new(cold.join("nowait-bench.data"), plan.keep),
            cold_bytes: extent.size_bytes,
            plan,
            folders,
            startups: BTreeMap::new(),
            busy: None,
            runtime: extent.runtime,
            case: Current::default(),
        })
    }

    fn probe(&mut self, cases: &mut Vec<FioCase>, session: &mut Session) -> Result<()> {
        let mut errors = BTreeMap::new();
        for subject in cases.iter().flat_map(|case| &case.subjects) {
            let name = subject.name;
            if self.startups.contains_key(name) || errors.contains_key(name) {
                continue;
            }
            match self.fio.probe(subject, self.folders.disk.path()) {
                Ok(startup) => drop(self.startups.insert(name, startup)),
                Err(error) => {
                    interrupt::check()?;
                    if REQUIRED.contains(&name) {
                        return Err(Failure::new(format!("{name}: {error}")));
                    }
                    errors.insert(name, error.to_string());
                }
            }
        }
        session.leave_possible(cases, |_, subject| errors.get(subject.name).cloned());
        Ok(())
    }

    fn leave_runnable(&self, cases: &mut Vec<FioCase>, session: &mut Session) -> Result<()> {
        let folder = self.folders.asked.display();
        let has_direct = smallest_direct_block(self.folders.disk.path()).is_some();
        let memory = self.folders.memory_is_usable(self.plan.cached_bytes);
        session.leave_possible(cases, |case, _| match work(case).place {
            Place::Disk => (work(case).direct && !has_direct)
                .then(|| format!("it needs O_DIRECT, which {folder} refuses; pass another --dir")),
            Place::Tmpfs => memory.as_ref().err().map(Failure::to_string),
        });
        if cases.is_empty() {
            return Err(Failure::new(session.notes.pop().unwrap_or_default()));
        }
        if layout::is_tmpfs(&self.folders.asked) {
            session.notes.push(format!("{folder} lies in memory: nothing there waits for a disk"));
        }
        Ok(())
    }

    fn lay_out_cold(&mut self, cases: &[FioCase], session: &mut Session) -> Result<()> {
        let own = |work: &&Work| work.place == Place::Disk && !work.is_on_shared_file();
        let largest = cases.iter().map(work).filter(own).map(|work| self.size_of(work)).max();
        let largest = largest.unwrap_or(0);
        layout::check_space(self.cold.path(), largest)?;
        if !cases.iter().any(|case| work(case).is_on_shared_file()) {
            return Ok(());
        }
        let (begun, budget, asked) = (self.begun, self.plan.budget, session.extent.size_bytes);
        let more = |written: u64| {
            let late = budget.is_some_and(|budget| begun.elapsed() > budget / 4);
            !late || written < SHORTENED_BYTES_MIN
        };
        let progress = |written| session.progress.laying_out(written, asked);
        self.cold_bytes = self.cold.lay_out(asked, largest, &more, &progress)?;
        if self.cold_bytes < asked {
            let [size, asked] = [self.cold_bytes, asked].map(|bytes| units::bytes(bytes as f64));
            session.notes.push(format!("the disk is slow: the file is {size} instead of {asked}"));
        }
        Ok(())
    }

    fn make_ready(&self, run: &Run<'_>) -> Result<()> {
        for (index, path) in run.paths.iter().enumerate() {
            match run.work.start {
                // The turn of the first file has dropped all caches.
                Start::Cold if index > 0 && self.drop_caches => {}
                Start::Cold => cache::make_cold(path, self.drop_caches)?,
                Start::Cached => {
                    cache::write_back(path)?;
                    cache::make_cached(path, run.size_bytes)?;
                }
                Start::Absent => self.case.own[index].make_fresh(0)?,
                Start::Holes => self.case.own[index].make_fresh(run.size_bytes)?,
            }
        }
        if run.work.makes_fresh_file() {
            cache::make_cold(&self.folders.asked, self.drop_caches)?;
        }
        if self.drop_caches && run.work.start != Start::Cached {
            self.fio.load(run.way)?;
        }
        Ok(())
    }

    /// If the job only reads, another run of fio writes the data before.
    fn verify_once(&self, run: &Run<'_>) -> Result<Sample> {
        let startup = Startup::default();
        if run.work.reads_only() {
            let (rw, start) = (Rw::Write, Start::Cached);
            let work = Work { rw, start, direct: false, more: Vec::new(), ..run.work.clone() };
            let system = super::job::ways().into_iter().find(|way| way.name == "system");
            let way = system.map_or_else(|| run.way.clone(), |system| system.job);
            let purpose = Purpose::WritePattern;
            self.fio.run(&Run { way: &way, work: &work, purpose, ..*run }, &startup)?;
        }
        self.make_ready(run)?;
        let verified = self.fio.run(&Run { purpose: Purpose::Verify, ..*run }, &startup)?;
        match verified.bytes >= run.work.verified_bytes(run.size_bytes) as f64 {
            true => Ok(Sample::from([(Metric::VerifyErrors, 0.0)])),
            false => Err(Failure::new("fio did not verify all of its data")),
        }
    }

    fn runtime(&self, planned: Duration, runs: usize) -> Duration {
        let Some(budget) = self.plan.budget else { return planned };
        let left = budget.saturating_sub(self.begun.elapsed());
        let share = (left / runs.max(1) as u32).saturating_sub(OVERHEAD);
        share.clamp(RUNTIME_MIN.min(planned), planned)
    }

    fn files_of(&self, case: &FioCase) -> Result<Vec<TestFile>> {
        let work = work(case);
        if work.is_on_shared_file() {
            return Ok(Vec::new());
        }
        let folder = match (work.place, &self.folders.memory) {
            (Place::Tmpfs, Ok(memory)) => memory,
            _ => &self.folders.disk,
        };
        let paths = work.paths(&folder.path().join(format!("nowait-bench-{}", case.name)));
        let files: Vec<TestFile> =
            paths.into_iter().map(|path| TestFile::new(path, false)).collect();
        for file in files.iter().filter(|_| !work.makes_fresh_file()) {
            let size_bytes = self.plan.cached_bytes / u64::from(work.files);
            file.lay_out(size_bytes, 0, &|_| true, &|_| ())?;
        }
        Ok(files)
    }

    fn size_of(&self, work: &Work) -> u64 {
        match work.start {
            Start::Cold if work.is_on_shared_file() => self.cold_bytes,
            Start::Cold | Start::Cached => self.plan.cached_bytes,
            Start::Absent | Start::Holes => self.plan.fresh_bytes,
        }
    }
}

/// Leaves out cases that write: there, other work includes kernel threads that write for the case.
fn other_work(results: &[CaseResults]) -> Option<String> {
    let busy = |case: &CaseResults| {
        let of = |name| Some(case.runs.summary(name, Metric::OtherBusyCores)?.median);
        case.runs.names().filter_map(of).fold(0.0, f64::max)
    };
    let reads = results.iter().filter(|case| case.params["rw"].as_str().is_some_and(is_read));
    let noisy: Vec<(&str, f64)> = reads
        .map(|case| (case.case.name, busy(case)))
        .filter(|(_, cores)| *cores > OTHER_WORK_CORES)
        .collect();
    let most = noisy.iter().map(|(_, cores)| *cores).fold(0.0, f64::max);
    let names: Vec<&str> = noisy.iter().map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("other work took up to {most:.1} cores beside {names}; the figures are noisy")
    })
}

fn is_read(rw: &str) -> bool {
    [Rw::Read, Rw::RandRead].into_iter().any(|read| read.word() == rw)
}

/// Notes each subject whose disk reads do not fit the state of the page cache that the case
/// requires.
fn note_cache(work: &Work, results: &CaseResults, notes: &mut Vec<String>) {
    let Some((least, most)) = work.disk_reads() else { return };
    for name in results.runs.names() {
        let share = results.runs.summary(name, Metric::DiskReadPerByte).map(|it| it.median);
        if let Some(share) = share.filter(|share| !(least..=most).contains(share)) {
            let expected = if least > 0.0 { format!("≥ {least}") } else { format!("≤ {most}") };
            notes.push(format!(
                "case {}: of each byte moved by {name}, {share:.2} were read from the disk, where \
                 {expected} was expected",
                results.case.name
            ));
        }
    }
}

impl Suite for FioSuite {
    type Job = FioJob;

    fn is_case_by_case(&self) -> bool {
        true
    }

    fn prepare(&mut self, cases: &mut Vec<FioCase>, session: &mut Session) -> Result<()> {
        self.probe(cases, session)?;
        self.leave_runnable(cases, session)?;
        self.lay_out_cold(cases, session)?;
        let subjects: usize = cases.iter().map(|case| case.subjects.len()).sum();
        self.runtime = self.runtime(session.extent.runtime, subjects * session.extent.rounds);
        let busy = self.plan.parity.map_or(0, |parity| parity.busy);
        self.busy = (busy > 0).then(|| Busy::start(busy));
        Ok(())
    }

    fn begin(&mut self, case: &FioCase, _session: &mut Session) -> Result<()> {
        // Remove the files of the previous case first.
        self.case = Current::default();
        let own = self.files_of(case)?;
        let paths = match own.as_slice() {
            [] => vec![self.cold.path().to_owned()],
            own => own.iter().map(|file| file.path().to_owned()).collect(),
        };
        self.case = Current { own, paths, size_bytes: self.size_of(work(case)) };
        Ok(())
    }

    fn run(&mut self, it: suite::Run<'_, FioJob>, _session: &mut Session) -> Result<Sample> {
        let FioJob { engine, work } = &it.subject.job;
        let Current { ref paths, size_bytes, .. } = self.case;
        let (runtime, seed, purpose) = (self.runtime, it.seed(), Purpose::Measure);
        let run = Run { way: engine, work, paths, size_bytes, runtime, seed, purpose };
        if self.plan.parity.is_some_and(|parity| parity.verify) {
            return self.verify_once(&run);
        }
        self.make_ready(&run)?;
        let start = if self.plan.parity.is_some() { "system" } else { it.subject.name };
        let startup = self.startups.get(start).cloned().unwrap_or_default();
        Ok(self.fio.run(&run, &startup)?.sample)
    }

    fn results(&mut self, case: &FioCase, runs: Runs, session: &mut Session) -> CaseResults {
        let (runtime_s, work) = (self.runtime.as_secs_f64(), work(case));
        let size_bytes = self.case.size_bytes;
        let (seconds, size) = (units::digits(runtime_s), units::bytes(size_bytes as f64));
        let params = json!({
            "rw": work.rw.word(),
            "block_bytes": work.block_bytes,
            "depth": work.depth,
            "direct": work.direct,
            "sync": work.sync,
            "jobs": work.jobs,
            "files": work.files,
            "more": work.more,
            "size_bytes": size_bytes,
            "runtime_s": runtime_s,
        });
        let how = format!("{} rounds of {seconds} s on {size}.", session.extent.rounds);
        let mut results = CaseResults { how, ..CaseResults::new(case, runs, params) };
        note_cache(work, &results, &mut session.notes);
        if let Some(Parity { limits, .. }) = self.plan.parity {
            limits.record(&mut results);
        }
        results
    }

    fn describe(&mut self, results: &[CaseResults], session: &mut Session) -> Description {
        if self.busy.is_none() {
            session.notes.extend(other_work(results));
        }
        if !self.drop_caches {
            let why = if cache::can_drop() { "as asked" } else { "dropping all needs root" };
            session.notes.push(format!(
                "only the pages of the test file were dropped from the cache before a run ({why}); \
                 metadata stayed cached"
            ));
        }
        let startups = || self.startups.iter();
        let cpu_us: BTreeMap<&str, f64> =
            startups().map(|(name, startup)| (*name, startup.cpu_us)).collect();
        let reports: BTreeMap<&str, &str> = startups()
            .filter_map(|(name, startup)| Some((*name, startup.report.as_deref()?)))
            .collect();
        let params = json!({
            "busy_loops": self.plan.parity.map_or(0, |parity| parity.busy),
            "folder": self.folders.asked.display().to_string(),
            "caches_dropped": self.drop_caches,
            "page_cache": cache::state(self.drop_caches),
            // Subtracted from `cpu_us_per_io`; in `bench parity`, each subject has the cost of
            // `system`.
            "startup_cpu_us": cpu_us,
            "library_reports": reports,
        });
        Description {
            fio: self.fio.version.clone(),
            pairs: Pairs::With(&["system", "io_uring", "posixaio"]),
            ..Description::new(self.plan.workload, &self.folders.asked, params)
        }
    }

    fn text(&self, measurement: &Measurement) -> String {
        match self.plan.parity {
            None => measurement.text(),
            Some(Parity { verify: true, .. }) => verdict::verified(measurement),
            Some(Parity { limits, .. }) => limits.table(measurement),
        }
    }

    fn lost(&self, measurement: &Measurement) -> Option<String> {
        match self.plan.parity {
            None => measurement.unmet(),
            Some(Parity { limits, .. }) => {
                let lost = limits.lost(measurement);
                (lost > 0).then(|| format!("{lost} cells are lost"))
            }
        }
    }
}
