//! Makes a measurement: every case, every subject, every round.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use super::cases::{Job, Place, Start, Way};
use super::prepare::{Folders, leave_runnable, probe};
use crate::args::Extent;
use crate::busy::Busy;
use crate::cache;
use crate::case::Case;
use crate::error::Result;
use crate::fio::{Fio, Launch, Purpose, Run, Startup};
use crate::host::Host;
use crate::interrupt;
use crate::layout::{self, SMALLER, TestFile};
use crate::measurement::{CaseResults, Measurement, Pairs};
use crate::metric::{Metric, Sample};
use crate::progress::Progress;
use crate::runner;
use crate::units;

/// What a run costs beside its runtime (flush, start-up), until it is known better.
const OVERHEAD_GUESS_S: f64 = 1.2;

/// Runs shorter than this say nothing.
const RUNTIME_MIN_S: f64 = 0.5;

/// Less than this is not worth measuring on: it would be read over and over.
const SHORTENED_BYTES_MIN: u64 = 512 << 20;

/// Other programs above this share of a core are worth a word.
const OTHER_WORK_CORES: f64 = 0.25;

/// What to measure, and where.
pub(crate) struct Plan {
    pub(crate) workload: &'static str,
    /// The size is that of the file that is read uncached.
    pub(crate) extent: Extent,
    /// Size of the file that fits the cache, and of the one in memory.
    pub(crate) cached_bytes: u64,
    /// Upper bound of a file that is written anew in each run.
    pub(crate) fresh_bytes: u64,
    pub(crate) folder: PathBuf,
    pub(crate) memory_folder: PathBuf,
    /// Drop the page cache of the whole machine before a run, not only the pages of the file.
    pub(crate) drop_caches: bool,
    pub(crate) keep: bool,
    /// Shortens files and runs so that everything ends within this time.
    pub(crate) budget: Option<Duration>,
    pub(crate) fio: Fio,
    pub(crate) extra: Extra,
}

/// What only some measurements do.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// Busy loops beside the runs.
    pub(crate) busy: usize,
    /// Verifies the data of each job instead of measuring it.
    pub(crate) verify: bool,
    /// Subtracts what fio needs to start under the system's library from every engine alike, so
    /// that what nowait adds to the start of a process is counted.
    pub(crate) counts_start: bool,
}

/// A running measurement.
struct Suite<'a> {
    plan: &'a Plan,
    progress: &'a Progress,
    begun: Instant,
    folders: Folders,
    cold: TestFile,
    cold_bytes: u64,
    startups: BTreeMap<Launch, Startup>,
    notes: Vec<String>,
    failed: Vec<String>,
    /// Cases whose runs ended early.
    short: Vec<&'static str>,
    /// Cases with other work beside them, and the processors it took at most.
    noisy: Vec<&'static str>,
    other_cores_max: f64,
    runs_left: usize,
    /// Time spent on runs so far beyond their runtime, and the number of those runs.
    overhead: (f64, usize),
}

/// Carries out a plan.
///
/// # Errors
/// Something is missing, a run failed, or the user asked to stop; test files are removed.
pub(crate) fn measure(plan: &Plan, mut cases: Vec<Case<Way>>) -> Result<Measurement> {
    let begun = Instant::now();
    let folders = Folders::make(plan)?;
    let (startups, mut notes) = probe(plan, &cases, &folders)?;
    leave_runnable(plan, &mut cases, &folders, &startups, &mut notes)?;
    let Extent { rounds, runtime, size_bytes } = plan.extent;
    let progress = &Progress::new();
    let mut suite = Suite {
        plan,
        progress,
        begun,
        cold: TestFile::new(folders.cold.join("nowait-bench.data"), plan.keep),
        folders,
        cold_bytes: size_bytes,
        startups,
        notes,
        failed: Vec::new(),
        short: Vec::new(),
        noisy: Vec::new(),
        other_cores_max: 0.0,
        runs_left: cases.iter().map(|case| case.subjects.len() * rounds).sum(),
        overhead: (0.0, 0),
    };
    suite.lay_out_cold(&cases)?;
    let planned_s = runtime.as_secs_f64() + OVERHEAD_GUESS_S;
    runner::expect(progress, &cases, rounds, |_| planned_s);
    let _busy = Busy::start(plan.extra.busy)?;
    progress.start_runs();
    let mut results = Vec::new();
    for case in &cases {
        results.push(suite.measure_case(case)?);
        if interrupt::happened() {
            break;
        }
    }
    Ok(suite.finish(results))
}

/// Returns the job that all subjects of a case do.
fn job(case: &Case<Way>) -> &Job {
    &case.subjects[0].job.1
}

/// Returns `true` if the job works on the file that cold cases share.
fn is_on_shared_file(job: &Job) -> bool {
    job.start == Start::Cold && job.files == 1
}

impl Suite<'_> {
    /// Writes the file that the cold cases share, after checking the space for all that follows.
    fn lay_out_cold(&mut self, cases: &[Case<Way>]) -> Result<()> {
        let own = |job: &&Job| job.place == Place::Disk && !is_on_shared_file(job);
        let largest = cases.iter().map(job).filter(own).map(|job| self.size_of(job)).max();
        let largest = largest.unwrap_or(0);
        layout::check_space(self.cold.path(), largest, SMALLER)?;
        if !cases.iter().map(job).any(is_on_shared_file) {
            return Ok(());
        }
        let (begun, budget) = (self.begun, self.plan.budget);
        let more = |written: u64| {
            let late = budget.is_some_and(|budget| begun.elapsed() > budget / 4);
            !late || written < SHORTENED_BYTES_MIN
        };
        let asked = self.plan.extent.size_bytes;
        let progress = |written| self.progress.laying_out(written, asked);
        self.cold_bytes = self.cold.lay_out(asked, largest, &more, &progress)?;
        if self.cold_bytes < asked {
            let [size, asked] = [self.cold_bytes, asked].map(|bytes| units::bytes(bytes as f64));
            self.notes.push(format!("the disk is slow: the file is {size} instead of {asked}"));
        }
        Ok(())
    }

    fn measure_case(&mut self, case: &Case<Way>) -> Result<CaseResults> {
        let (runtime, size_bytes) = (self.runtime(), self.size_of(job(case)));
        let own = self.files_of(case)?;
        let paths = match own.as_slice() {
            [] => vec![self.cold.path().to_owned()],
            own => own.iter().map(|file| file.path().to_owned()).collect(),
        };
        let mut bytes_max = 0.0_f64;
        let (one, rounds) = (std::slice::from_ref(case), self.plan.extent.rounds);
        let progress = self.progress;
        let mut runs = runner::measure(progress, one, rounds, |_, subject, round| {
            let (launch, job) = &subject.job;
            let (paths, seed, purpose) = (&paths, round as u64 + 1, Purpose::Measure);
            let run = Run { launch: *launch, job, paths, size_bytes, runtime, seed, purpose };
            let (sample, bytes) = match self.plan.extra.verify {
                true => self.verify_once(case.name, &run, &own)?,
                false => self.run_once(&run, &own)?,
            };
            bytes_max = bytes_max.max(bytes);
            Ok(Some(sample))
        })?;
        self.note_short_runs(case, bytes_max, size_bytes);
        let (runtime_s, job) = (runtime.as_secs_f64(), job(case));
        let (seconds, size) = (units::digits(runtime_s), units::bytes(size_bytes as f64));
        let params = json!({
            "rw": job.rw,
            "block_bytes": job.block_bytes,
            "depth": job.depth,
            "direct": job.direct,
            "sync": job.sync,
            "jobs": job.jobs,
            "files": job.files,
            "more": job.more,
            "size_bytes": size_bytes,
            "runtime_s": runtime_s,
        });
        let how = format!("{rounds} rounds of {seconds} s on {size}.");
        let results = CaseResults { how, ..CaseResults::new(case, runs.remove(0), params) };
        self.note_other_work(job, &results);
        self.note_cache(job, &results);
        Ok(results)
    }

    /// Brings files and cache into the state the case starts from.
    fn prepare(&self, run: &Run<'_>, own: &[TestFile]) -> Result<()> {
        for (index, path) in run.paths.iter().enumerate() {
            match run.job.start {
                // All caches are dropped together.
                Start::Cold if index > 0 && self.plan.drop_caches => {}
                Start::Cold => cache::make_cold(path, self.plan.drop_caches)?,
                Start::Cached => {
                    cache::write_back(path)?;
                    cache::make_cached(path, run.size_bytes)?;
                }
                Start::Absent => own[index].make_fresh(0)?,
                Start::Holes => own[index].make_fresh(run.size_bytes)?,
            }
        }
        if run.job.makes_fresh_file() {
            cache::make_cold(&self.plan.folder, self.plan.drop_caches)?;
        }
        if self.plan.drop_caches && run.job.start != Start::Cached {
            self.plan.fio.load(run.launch)?;
        }
        Ok(())
    }

    /// Has fio verify what the job reads, or what it has written.
    fn verify_once(
        &mut self,
        case: &str,
        run: &Run<'_>,
        own: &[TestFile],
    ) -> Result<(Sample, f64)> {
        let startup = Startup::default();
        if run.job.reads_only() {
            let job =
                Job { rw: "write", start: Start::Cached, direct: false, more: &[], ..*run.job };
            let (launch, purpose) = (Launch::System, Purpose::WritePattern);
            self.plan.fio.run(&Run { launch, job: &job, purpose, ..*run }, &startup)?;
        }
        self.prepare(run, own)?;
        let verified = self.plan.fio.run(&Run { purpose: Purpose::Verify, ..*run }, &startup);
        let expected_bytes = run.job.verified_bytes(run.size_bytes) as f64;
        let error = match verified {
            Ok(measured) if measured.bytes >= expected_bytes => None,
            Ok(_) => Some(format!("{}: fio did not verify all of its data", run.launch.name())),
            Err(error) => Some(error.to_string()),
        };
        interrupt::check()?;
        let errors = if error.is_some() { 1.0 } else { 0.0 };
        self.failed.extend(error.map(|error| format!("case {case}: {error}")));
        Ok((Sample::from([(Metric::VerifyErrors, errors)]), 0.0))
    }

    /// Makes a measured run.
    fn run_once(&mut self, run: &Run<'_>, own: &[TestFile]) -> Result<(Sample, f64)> {
        let begun = Instant::now();
        self.prepare(run, own)?;
        let start = if self.plan.extra.counts_start { Launch::System } else { run.launch };
        let startup = self.startups.get(&start).cloned().unwrap_or_default();
        let measured = self.plan.fio.run(run, &startup)?;
        self.runs_left = self.runs_left.saturating_sub(1);
        self.overhead.0 += (begun.elapsed().as_secs_f64() - run.runtime.as_secs_f64()).max(0.0);
        self.overhead.1 += 1;
        Ok((measured.sample, measured.bytes))
    }

    /// Returns the runtime of the next case: as planned, or what the budget leaves.
    fn runtime(&self) -> Duration {
        let Some(budget) = self.plan.budget else { return self.plan.extent.runtime };
        let left_s = budget.as_secs_f64() - self.begun.elapsed().as_secs_f64();
        let overhead_s = match self.overhead {
            (_, 0) => OVERHEAD_GUESS_S,
            (total_s, runs) => total_s / runs as f64,
        };
        let share_s = left_s / self.runs_left.max(1) as f64 - overhead_s;
        let longest_s = self.plan.extent.runtime.as_secs_f64();
        Duration::from_secs_f64(share_s.clamp(RUNTIME_MIN_S.min(longest_s), longest_s))
    }

    /// Returns the files of a case that has its own; none means the shared cold file.
    fn files_of(&self, case: &Case<Way>) -> Result<Vec<TestFile>> {
        let job = job(case);
        if is_on_shared_file(job) {
            return Ok(Vec::new());
        }
        let folder = match (job.place, &self.folders.memory) {
            (Place::Tmpfs, Some(memory)) => memory,
            _ => &self.folders.disk,
        };
        let paths = job.paths(&folder.join(format!("nowait-bench-{}", case.name)));
        let files: Vec<TestFile> =
            paths.into_iter().map(|path| TestFile::new(path, false)).collect();
        if !job.makes_fresh_file() {
            let size_bytes = self.plan.cached_bytes / u64::from(job.files);
            for file in &files {
                file.lay_out(size_bytes, 0, &|_| true, &|_| ())?;
            }
        }
        Ok(files)
    }

    fn size_of(&self, job: &Job) -> u64 {
        match job.start {
            Start::Cold if is_on_shared_file(job) => self.cold_bytes,
            Start::Cold | Start::Cached => self.plan.cached_bytes,
            Start::Absent | Start::Holes => self.plan.fresh_bytes,
        }
    }

    /// Notes that runs ended early, having visited every block once.
    fn note_short_runs(&mut self, case: &Case<Way>, bytes_max: f64, size_bytes: u64) {
        // fio leaves out what does not fill a block at the end.
        let all = (size_bytes - size_bytes % job(case).block_bytes) as f64;
        if job(case).ends_after_one_lap() && bytes_max >= all {
            self.short.push(case.name);
        }
    }

    fn note_other_work(&mut self, job: &Job, results: &CaseResults) {
        let busy = |subject| results.runs.summary(subject, Metric::OtherBusyCores);
        let worst = results.runs.names().filter_map(busy).map(|busy| busy.median);
        let worst = worst.fold(0.0, f64::max);
        // What is written goes to the disk in kernel threads, which are other work but not noise.
        if job.reads_only() && self.plan.extra.busy == 0 && worst > OTHER_WORK_CORES {
            self.noisy.push(results.case.name);
            self.other_cores_max = self.other_cores_max.max(worst);
        }
    }

    /// Notes that a case did not run in the state of the page cache that it is about.
    fn note_cache(&mut self, job: &Job, results: &CaseResults) {
        let Some((least, most)) = job.disk_reads() else { return };
        for name in results.runs.names() {
            let share = results.runs.summary(name, Metric::DiskReadPerByte).map(|it| it.median);
            if let Some(share) = share.filter(|share| !(least..=most).contains(share)) {
                let expected =
                    if least > 0.0 { format!("≥ {least}") } else { format!("≤ {most}") };
                self.notes.push(format!(
                    "case {}: of each byte moved by {name}, {share:.2} were read from the disk, \
                     where {expected} was expected",
                    results.case.name
                ));
            }
        }
    }

    fn finish(mut self, cases: Vec<CaseResults>) -> Measurement {
        if !self.short.is_empty() {
            self.notes.push(format!(
                "runs ended early, after one visit of every block, in {}; a larger --size makes \
                 them longer",
                self.short.join(", ")
            ));
        }
        if !self.noisy.is_empty() {
            self.notes.push(format!(
                "other work took up to {:.1} cores beside {}; the figures are noisy",
                self.other_cores_max,
                self.noisy.join(", ")
            ));
        }
        if !self.plan.drop_caches {
            let why = if cache::can_drop() { "as asked" } else { "dropping all needs root" };
            self.notes.push(format!(
                "only the pages of the test file were dropped from the cache before a run ({why}); \
                 metadata stayed cached"
            ));
        }
        let startups = || self.startups.iter();
        let cpu_us: BTreeMap<&str, f64> =
            startups().map(|(launch, startup)| (launch.name(), startup.cpu_us)).collect();
        let reports: BTreeMap<&str, &str> = startups()
            .filter_map(|(launch, startup)| Some((launch.name(), startup.report.as_deref()?)))
            .collect();
        let plan = self.plan;
        let params = json!({
            "rounds": plan.extent.rounds,
            "busy_loops": plan.extra.busy,
            "folder": plan.folder.display().to_string(),
            "caches_dropped": plan.drop_caches,
            "page_cache": cache::state(plan.drop_caches),
            // Already subtracted from `cpu_us_per_io`: from each its own, or that of `system`.
            "startup_cpu_us": cpu_us,
            "library_reports": reports,
        });
        let host = Host::describe(&plan.folder, &plan.fio.version);
        Measurement {
            pairs: Pairs::With(&["system", "io_uring", "posixaio"]),
            notes: self.notes,
            failed: self.failed,
            ..Measurement::new(plan.workload, host, params, cases)
        }
    }
}
