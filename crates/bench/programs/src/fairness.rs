//! `bench fairness`: what a context with one request at a time waits for beside one with
//! ten thousand.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use nowait_engine::{BackendChoice, Engine, Kind, Segments};
use nowait_sys::file::{Advice, advise};
use serde_json::json;

use nowait_harness::args::{Defaults, FOLDER, MeasureArgs};
use nowait_harness::case::{Case, Subject};
use nowait_harness::error::{BenchError, Context as _, Result};
use nowait_harness::layout::TestFile;
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::rig::{Rig, engine, wrong_bytes};
use nowait_harness::stats::{SplitMix, percentile};
use nowait_harness::suite::{self, Description, Session, Suite};
use nowait_harness::{interrupt, memory};

const EXAMPLES: &str = "\
Three runs of 2 s on a file of 2G; with --quick 500 ms.

Examples:
  nowait bench fairness                        every backend, under a minute
  nowait bench fairness --depth 1000 --runtime 500ms";

const DEFAULTS: Defaults = Defaults {
    rounds: 3,
    runtime_ms: [2000, 500],
    size_bytes: [2 << 30; 2],
    least_bytes: 16 << 20,
};

/// Measures how long single requests take beside a context with thousands.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct FairnessArgs {
    /// Requests that the other context has in flight
    #[arg(long, value_name = "N", default_value = "10000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub depth: u32,

    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Folder of the test file; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,
}

const BLOCK: usize = 4096;
const BACKENDS: [(BackendChoice, &str); 3] = [
    (BackendChoice::Uring, "nowait-uring"),
    (BackendChoice::Kaio, "nowait-kaio"),
    (BackendChoice::Threads, "nowait-threads"),
];

/// A backend, and whether the context with one request is beside the deep one.
type Job = (BackendChoice, bool);

fn cases(depth: u32) -> Vec<Case<Job>> {
    let case = |name, title, deep| {
        let subject = |(backend, name)| Subject { name, engine: (name, ""), job: (backend, deep) };
        Case {
            name,
            title,
            about: "Buffered reads of random uncached blocks of 4 KiB, from submission to \
                    completion.",
            source: String::new(),
            columns: &[
                Metric::Iops,
                Metric::LatencyUsP50,
                Metric::LatencyUsP99,
                Metric::LatencyUsMax,
            ],
            subjects: BACKENDS.into_iter().map(subject).collect(),
            targets: Vec::new(),
        }
    };
    vec![
        case("alone", "one request at a time, nothing else".to_owned(), false),
        case("beside", format!("one request at a time, beside {depth} of another context"), true),
    ]
}

/// Runs each backend, alone and beside the deep context, and prints a table.
///
/// # Errors
/// A run failed. A backend that does not work here is only noted.
pub fn run_fairness(args: &FairnessArgs) -> Result<Option<Measurement>> {
    let cases = args.measure.select_subjects(cases(args.depth))?;
    args.measure.measure(&DEFAULTS, cases, |_, _| {
        let file =
            TestFile::with_pattern(args.dir.join("nowait-bench.fairness"), args.measure.keep);
        Ok(Fairness { file, folder: args.dir.clone(), depth: args.depth })
    })
}

struct Fairness {
    file: TestFile,
    folder: PathBuf,
    depth: u32,
}

impl Suite for Fairness {
    type Job = Job;

    fn prepare(&mut self, cases: &mut Vec<Case<Job>>, session: &mut Session) -> Result<()> {
        session.leave_possible(cases, |_, subject| {
            let engine = engine(subject.job.0).map(|engine| engine.shutdown());
            engine.err().map(|error| error.to_string())
        });
        session.lay_out(&self.file)
    }

    fn run(&mut self, it: suite::Run<'_, Job>, session: &mut Session) -> Result<Sample> {
        let (backend, deep) = it.subject.job;
        let open = || {
            let file = OpenOptions::new().read(true).open(self.file.path());
            file.context(|| format!("open {}", self.file.path().display()))
        };
        let (engine, near, far) = (engine(backend)?, &open()?, &open()?);
        let blocks = session.extent.size_bytes / BLOCK as u64;
        let run = Run { engine: &engine, near, far, blocks };
        let sample = run.measure(session.extent.runtime, deep.then_some(self.depth));
        engine.shutdown();
        sample
    }

    fn describe(&mut self, _results: &[CaseResults], _session: &mut Session) -> Description {
        let page_cache = "pages of the file dropped before each run";
        let params = json!({ "depth": self.depth, "page_cache": page_cache });
        Description {
            pairs: Pairs::With(&[]),
            ..Description::new("fairness", &self.folder, params)
        }
    }
}

/// Sums up what the requests of a run took, in microseconds.
fn sample(latencies_us: &[f64], seconds: f64) -> Sample {
    let at = |part| percentile(latencies_us, part);
    Sample::from([
        (Metric::Iops, latencies_us.len() as f64 / seconds),
        (Metric::LatencyUsP50, at(0.5)),
        (Metric::LatencyUsP90, at(0.9)),
        (Metric::LatencyUsP99, at(0.99)),
        (Metric::LatencyUsP999, at(0.999)),
        (Metric::LatencyUsMax, at(1.0)),
        (Metric::RssBytesMax, memory::peak_bytes()),
    ])
}

struct Run<'a> {
    engine: &'a Arc<Engine>,
    near: &'a File,
    far: &'a File,
    blocks: u64,
}

impl Run<'_> {
    /// Reads block after block, alone or beside a context that keeps so many reads in flight;
    /// returns how long they took.
    fn measure(&self, runtime: Duration, deep: Option<u32>) -> Result<Sample> {
        memory::forget_peak();
        advise(self.near.as_raw_fd(), 0, 0, Advice::DontNeed)
            .map_err(nowait_harness::error::failed("drop the page cache"))?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = &over;
            let other = deep.map(|depth| scope.spawn(move || self.keep_deep(depth, over)));
            let measured = self.one_by_one(runtime);
            over.store(true, Relaxed);
            match other.map(std::thread::ScopedJoinHandle::join) {
                Some(Ok(kept)) => kept?,
                Some(Err(_)) => return Err(BenchError::failed("the deep context panicked")),
                None => {}
            }
            measured
        })
    }

    fn one_by_one(&self, runtime: Duration) -> Result<Sample> {
        let rig = Rig::new(self.engine, 8, BLOCK)?;
        let (mut random, mut latencies_us) = (SplitMix(1), Vec::new());
        let start = Instant::now();
        let more = || start.elapsed() < runtime && !interrupt::happened();
        while more() || latencies_us.is_empty() {
            let at = random.next() % self.blocks * BLOCK as u64;
            let begun = Instant::now();
            let part = Segments::One(rig.segment(0, BLOCK));
            rig.submit(self.near, Kind::Read, [(0, part, at)].into_iter())?;
            rig.reap(1, BLOCK, |_| {})?;
            latencies_us.push(begun.elapsed().as_secs_f64() * 1e6);
            check(&rig, 0, at)?;
        }
        Ok(sample(&latencies_us, start.elapsed().as_secs_f64()))
    }

    fn keep_deep(&self, depth: u32, over: &AtomicBool) -> Result<()> {
        let depth = depth as usize;
        let rig = Rig::new(self.engine, depth, depth * BLOCK)?;
        let mut random = SplitMix(2);
        let mut free: Vec<u64> = (0..depth as u64).collect();
        let mut places = vec![0; depth];
        let mut in_flight = 0;
        loop {
            if !over.load(Relaxed) {
                let transfers: Vec<_> = free
                    .drain(..)
                    .map(|name| {
                        let at = random.next() % self.blocks * BLOCK as u64;
                        places[name as usize] = at;
                        (name, Segments::One(rig.segment(name as usize * BLOCK, BLOCK)), at)
                    })
                    .collect();
                in_flight += transfers.len();
                rig.submit(self.far, Kind::Read, transfers.into_iter())?;
            }
            if in_flight == 0 {
                return Ok(());
            }
            let checked = free.len();
            in_flight -= rig.reap(in_flight, BLOCK, |name| free.push(name))?;
            for name in &free[checked..] {
                check(&rig, *name as usize, places[*name as usize])?;
            }
        }
    }
}

/// Fails unless a block of the memory, whose request is over, is that at byte `at` of the file.
fn check(rig: &Rig, slot: usize, at: u64) -> Result<()> {
    // SAFETY: the block is inside the memory, and free: its request has ended.
    match unsafe { rig.memory().is_in_place(slot * BLOCK, BLOCK, at) } {
        true => Ok(()),
        false => Err(wrong_bytes(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::report::Document;
    use nowait_harness::testing::parse;

    #[test]
    fn a_wrong_byte_is_a_failure() {
        let folder = tempfile::tempdir_in(FOLDER).expect("a folder");
        let path = folder.path().join("data");
        std::fs::write(&path, [7; 4 * BLOCK]).expect("written");
        let engine = engine(BackendChoice::Threads).expect("works everywhere");
        let open = || File::open(&path).expect("there");
        let (near, far) = (&open(), &open());
        let run = Run { engine: &engine, near, far, blocks: 4 };
        let alone = run.one_by_one(Duration::from_millis(1)).expect_err("sevens");
        let deep = run.keep_deep(2, &AtomicBool::new(false)).expect_err("sevens");
        for error in [alone, deep] {
            assert!(error.to_string().contains("wrong bytes"), "{error}");
        }
        engine.shutdown();
    }

    #[test]
    fn single_requests_go_on_beside_many() {
        let folder = tempfile::tempdir_in(FOLDER).expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (dir, json, html) = (path("."), path("fairness.json"), path("fairness.html"));
        let small = ["--depth=200", "--rounds=2", "--runtime=50ms", "--size=16M"];
        let places = ["--dir", &dir, "--json", &json, "--html", &html];
        run_fairness(&parse(&[&small[..], &places].concat())).expect("some backend works");
        let saved = Document::read(&folder.path().join("fairness.json")).expect("the figures");
        assert_eq!(saved.cases(), ["alone", "beside"]);
        assert!(saved.rows.iter().all(|row| row.runs().len() == 2));
        assert!(folder.path().join("fairness.html").exists());
    }
}
