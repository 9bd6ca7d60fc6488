//! Makes a measurement: every case, every subject, every round.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cache;
use crate::error::Result;
use crate::fio::{Fio, Run, Startup};
use crate::host::Host;
use crate::interleave::interleave;
use crate::interrupt;
use crate::job::{Case, Place, Start};
use crate::layout::{self, SMALLER, TestFile};
use crate::metric::{Metric, Sample};
use crate::prepare::{Folders, probe_subjects, runnable_cases};
use crate::progress::Progress;
use crate::results::{CaseResults, Params, Results};
use crate::subject::Subject;
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
    /// The cases, each with the subjects that were asked for.
    pub(crate) cases: Vec<(&'static Case, Vec<Subject>)>,
    pub(crate) rounds: usize,
    pub(crate) runtime: Duration,
    /// Size of the file that is read uncached.
    pub(crate) cold_bytes: u64,
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
}

/// A measurement under way.
struct Suite<'a> {
    plan: &'a Plan,
    progress: Progress,
    begun: Instant,
    folders: Folders,
    cold: TestFile,
    cold_bytes: u64,
    startups: BTreeMap<Subject, Startup>,
    notes: Vec<String>,
    runs_left: usize,
    /// Time spent on runs so far beyond their runtime, and the number of those runs.
    overhead: (f64, usize),
}

/// Carries out a plan.
///
/// # Errors
/// Something is missing, a run failed, or the user asked to stop; test files are removed.
pub(crate) fn measure(plan: &Plan) -> Result<Results> {
    interrupt::install();
    let begun = Instant::now();
    let folders = Folders::make(plan)?;
    let (startups, mut notes) = probe_subjects(plan, &folders)?;
    let cases = runnable_cases(plan, &folders, &startups, &mut notes)?;
    let runs = cases.iter().map(|(_, subjects)| subjects.len() * plan.rounds).sum::<usize>();
    let mut suite = Suite {
        plan,
        progress: Progress::new(),
        begun,
        cold: TestFile::new(folders.cold.join("nowait-bench.data"), plan.keep),
        folders,
        cold_bytes: plan.cold_bytes,
        startups,
        notes,
        runs_left: runs,
        overhead: (0.0, 0),
    };
    suite.lay_out_cold(&cases)?;
    for (case, subjects) in &cases {
        let planned_s = plan.runtime.as_secs_f64() + OVERHEAD_GUESS_S;
        for subject in subjects {
            suite.progress.expect(case.name, subject.name(), plan.rounds, planned_s);
        }
    }
    suite.progress.start_runs();
    let mut results = Vec::new();
    for (case, subjects) in &cases {
        results.push(suite.measure_case(case, subjects)?);
        if interrupt::happened() {
            break;
        }
    }
    Ok(suite.finish(results))
}

impl Suite<'_> {
    /// Writes the file that the cold cases share, after checking the space for all that follows.
    fn lay_out_cold(&mut self, cases: &[(&'static Case, Vec<Subject>)]) -> Result<()> {
        let on_disk = || cases.iter().filter(|(case, _)| case.place == Place::Disk);
        let largest = on_disk().filter(|(case, _)| case.start != Start::Cold);
        let largest = largest.map(|(case, _)| self.size_of(case)).max().unwrap_or(0);
        layout::check_space(self.cold.path(), largest, SMALLER)?;
        if !cases.iter().any(|(case, _)| case.reads_cold_file()) {
            return Ok(());
        }
        let (begun, budget) = (self.begun, self.plan.budget);
        let more = |written: u64| {
            let late = budget.is_some_and(|budget| begun.elapsed() > budget / 4);
            !late || written < SHORTENED_BYTES_MIN
        };
        let asked = self.plan.cold_bytes;
        let progress = |written| self.progress.laying_out(written, asked);
        self.cold_bytes = self.cold.lay_out(asked, largest, &more, &progress)?;
        if self.cold_bytes < asked {
            let [size, asked] = [self.cold_bytes, asked].map(|bytes| units::bytes(bytes as f64));
            self.notes.push(format!("the disk is slow: the file is {size} instead of {asked}"));
        }
        Ok(())
    }

    fn measure_case(&mut self, case: &'static Case, subjects: &[Subject]) -> Result<CaseResults> {
        let runtime = self.runtime();
        let own = self.file_of(case)?;
        let path = own.as_ref().unwrap_or(&self.cold).path().to_owned();
        let size_bytes = self.size_of(case);
        let mut bytes_max = 0.0_f64;
        let by_subject = interleave(subjects, self.plan.rounds, |round, subject| {
            self.progress.start(case.name, subject.name(), round);
            let run = Run {
                subject: *subject,
                job: &case.job,
                start: case.start,
                one_lap: case.ends_after_one_lap(),
                path: &path,
                size_bytes,
                runtime,
                seed: round as u64 + 1,
            };
            let (sample, bytes) = self.run_once(case, &run, own.as_ref())?;
            bytes_max = bytes_max.max(bytes);
            Ok(sample)
        })?;
        self.note_short_runs(case, bytes_max, size_bytes);
        let runs = subjects.iter().map(|subject| subject.name()).zip(by_subject).collect();
        let results = CaseResults { case, runs, runtime_s: runtime.as_secs_f64(), size_bytes };
        self.note_other_work(&results);
        Ok(results)
    }

    /// Brings file and cache into the state the case starts from, and runs.
    fn run_once(
        &mut self,
        case: &Case,
        run: &Run<'_>,
        own: Option<&TestFile>,
    ) -> Result<(Sample, f64)> {
        let begun = Instant::now();
        match (case.start, own) {
            (Start::Cold, _) => cache::make_cold(run.path, self.plan.drop_caches)?,
            (Start::Cached, _) => {
                cache::write_back(run.path)?;
                cache::make_cached(run.path, run.size_bytes)?;
            }
            (Start::Absent, Some(file)) => file.make_fresh(0)?,
            (Start::Holes, Some(file)) => file.make_fresh(run.size_bytes)?,
            (Start::Absent | Start::Holes, None) => {}
        }
        if case.makes_fresh_file() {
            cache::make_cold(&self.plan.folder, self.plan.drop_caches)?;
        }
        let startup = self.startups.get(&run.subject).cloned().unwrap_or_default();
        let measured = self.plan.fio.run(run, &startup)?;
        self.progress.finish_run();
        self.runs_left = self.runs_left.saturating_sub(1);
        self.overhead.0 += (begun.elapsed().as_secs_f64() - run.runtime.as_secs_f64()).max(0.0);
        self.overhead.1 += 1;
        Ok((measured.sample, measured.bytes))
    }

    /// Returns the runtime of the next case: as planned, or what the budget leaves.
    fn runtime(&self) -> Duration {
        let Some(budget) = self.plan.budget else { return self.plan.runtime };
        let left_s = budget.as_secs_f64() - self.begun.elapsed().as_secs_f64();
        let overhead_s = match self.overhead {
            (_, 0) => OVERHEAD_GUESS_S,
            (total_s, runs) => total_s / runs as f64,
        };
        let share_s = left_s / self.runs_left.max(1) as f64 - overhead_s;
        let longest_s = self.plan.runtime.as_secs_f64();
        Duration::from_secs_f64(share_s.clamp(RUNTIME_MIN_S.min(longest_s), longest_s))
    }

    /// Returns the file of a case that has its own; `None` means the shared cold file.
    fn file_of(&self, case: &Case) -> Result<Option<TestFile>> {
        let folder = match (case.place, &self.folders.memory) {
            (Place::Tmpfs, Some(memory)) => memory,
            _ => &self.folders.disk,
        };
        let file = TestFile::new(folder.join(format!("nowait-bench.{}", case.name)), false);
        match case.start {
            Start::Cold => Ok(None),
            Start::Absent | Start::Holes => Ok(Some(file)),
            Start::Cached => {
                file.lay_out(self.plan.cached_bytes, 0, &|_| true, &|_| ())?;
                Ok(Some(file))
            }
        }
    }

    fn size_of(&self, case: &Case) -> u64 {
        match case.start {
            Start::Cold => self.cold_bytes,
            Start::Cached => self.plan.cached_bytes,
            Start::Absent | Start::Holes => self.plan.fresh_bytes,
        }
    }

    /// Notes that runs ended early, having visited every block once.
    fn note_short_runs(&mut self, case: &Case, bytes_max: f64, size_bytes: u64) {
        // fio leaves out what does not fill a block at the end.
        let all = (size_bytes - size_bytes % case.job.block_bytes) as f64;
        if case.ends_after_one_lap() && bytes_max >= all {
            self.notes.push(format!(
                "case {}: runs ended early, after one visit of every block; a larger --size makes \
                 them longer",
                case.name
            ));
        }
    }

    fn note_other_work(&mut self, results: &CaseResults) {
        let busy = |subject| results.runs.summary(subject, Metric::OtherBusyCores);
        let worst = results.runs.names().filter_map(busy).map(|busy| busy.median);
        let worst = worst.fold(0.0, f64::max);
        // What is written goes to the disk in kernel threads, which are other work but not noise.
        let reads_only = matches!(results.case.job.rw, "read" | "randread");
        if reads_only && worst > OTHER_WORK_CORES {
            self.notes.push(format!(
                "case {}: other work took {worst:.1} cores meanwhile; the figures are noisy",
                results.case.name
            ));
        }
    }

    fn finish(mut self, cases: Vec<CaseResults>) -> Results {
        if !self.plan.drop_caches {
            let why = if cache::can_drop() { "as asked" } else { "dropping all needs root" };
            self.notes.push(format!(
                "only the pages of the test file were dropped from the cache before a run ({why}); \
                 metadata stayed cached"
            ));
        }
        let startups = || self.startups.iter();
        let params = Params {
            rounds: self.plan.rounds,
            folder: self.plan.folder.display().to_string(),
            caches_dropped: self.plan.drop_caches,
            startup_cpu_us: startups().map(|(subject, s)| (*subject, s.cpu_us)).collect(),
            library_reports: startups()
                .filter_map(|(subject, s)| Some((*subject, s.report.clone()?)))
                .collect(),
        };
        let host = Host::describe(&self.plan.folder, &self.plan.fio.version);
        Results { workload: self.plan.workload, host, params, cases, notes: self.notes }
    }
}
