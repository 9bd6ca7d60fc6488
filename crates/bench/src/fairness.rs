//! `bench fairness`: what a context with one request at a time waits for beside one with
//! ten thousand.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::Cell;
use nowait::{Engine, Kind, Segments};
use nowait_file::BackendChoice;
use nowait_sys::file::{Advice, advise};
use serde::Serialize;

use crate::args::{FOLDER, at_least};
use crate::error::{BenchError, Context as _, Result};
use crate::host::Host;
use crate::interleave::interleave;
use crate::interrupt;
use crate::layout::TestFile;
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::progress::Progress;
use crate::report::{Document, ReportArgs, Row, SCHEMA};
use crate::rig::{Rig, engine, wrong_bytes};
use crate::stats::{self, SplitMix};
use crate::table::{new_table, right, with_spread};
use crate::units::{parse_duration, parse_size};

const EXAMPLES: &str = "\
Examples:
  nowait bench fairness                        every backend, under a minute
  nowait bench fairness --depth 1000 --runtime 500ms";

/// Measures how long single requests take beside a context with thousands.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct FairnessArgs {
    /// Requests that the other context has under way
    #[arg(long, value_name = "N", default_value = "10000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub depth: u32,

    /// Runs of each
    #[arg(long, value_name = "N", default_value = "3")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,

    /// Time of one run
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub runtime: Duration,

    /// Size of the file
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_size)]
    pub size: u64,

    /// Folder of the test file; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Keep the laid-out file for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Reports to write
    #[command(flatten)]
    pub reports: ReportArgs,
}

const BLOCK: usize = 4096;
/// The smallest file that says anything.
const SIZE_BYTES_MIN: u64 = 16 << 20;
const BACKENDS: [(BackendChoice, &str); 3] = [
    (BackendChoice::Uring, "nowait-uring"),
    (BackendChoice::Kaio, "nowait-kaio"),
    (BackendChoice::Threads, "nowait-threads"),
];

/// Runs each backend, alone and beside the deep context, and prints a table.
///
/// # Errors
/// A run failed. A backend that does not work here is only said to.
pub fn run_fairness(args: &FairnessArgs) -> Result<()> {
    interrupt::install();
    let size = at_least(args.size, SIZE_BYTES_MIN)?;
    args.reports.prepare()?;
    let layout = TestFile::with_pattern(args.dir.join("nowait-bench.fairness"), args.keep);
    let progress = Progress::new();
    let laid_out = |written| progress.laying_out(written, size);
    layout.lay_out(size, 0, &|_| true, &laid_out)?;
    let open = || {
        let file = OpenOptions::new().read(true).open(layout.path());
        file.context(|| format!("open {}", layout.path().display()))
    };
    let (near, far) = (open()?, open()?);
    let (mut results, mut notes) = (Vec::new(), Vec::new());
    let backends = usable_backends(&mut notes);
    expect(&progress, args, &backends);
    progress.start_runs();
    for (backend, name) in backends {
        let engine = engine(backend)?;
        let run = Run { engine: &engine, near: &near, far: &far, blocks: size / BLOCK as u64 };
        let rounds = usize::from(args.rounds);
        let samples = interleave(&CASES, rounds, |round, (case, deep)| {
            progress.start(case, name, round);
            let sample = run.measure(args, *deep);
            progress.finish_run();
            sample
        })?;
        engine.shutdown();
        results.extend(CASES.into_iter().zip(samples).map(|((case, _), of)| (name, case, of)));
    }
    // The line of the progress ends before the report begins.
    drop(progress);
    let what = "Buffered reads of random uncached blocks of 4 KiB, from submission to completion.";
    let mut text = format!("{what}\n{}", table(args, &results));
    for note in &notes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\nNote: {note}.");
    }
    args.reports.say(&text);
    write(args, &results, &notes)?;
    interrupt::check()
}

/// Returns the backends that work here; notes the others.
fn usable_backends(notes: &mut Vec<String>) -> Vec<(BackendChoice, &'static str)> {
    let mut is_usable = |(backend, name): &(BackendChoice, &str)| match engine(*backend) {
        Ok(engine) => {
            engine.shutdown();
            true
        }
        Err(error) => {
            notes.push(format!("{name} was left out: {error}"));
            false
        }
    };
    BACKENDS.into_iter().filter(|backend| is_usable(backend)).collect()
}

/// Says which runs will come, for the time left.
fn expect(progress: &Progress, args: &FairnessArgs, backends: &[(BackendChoice, &str)]) {
    for (_, name) in backends {
        for (case, _) in CASES {
            progress.expect(case, name, args.rounds.into(), args.runtime.as_secs_f64());
        }
    }
}

/// Whether the context with one request is alone, or beside the deep one.
const CASES: [(&str, bool); 2] = [("alone", false), ("beside", true)];
const COLUMNS: [Metric; 4] =
    [Metric::Iops, Metric::LatencyUsP50, Metric::LatencyUsP99, Metric::LatencyUsMax];

/// Engine, case, and a sample of each round.
type Results = [(&'static str, &'static str, Vec<Sample>)];

fn figures(samples: &[Sample], metric: Metric) -> Vec<f64> {
    samples.iter().filter_map(|sample| sample.get(&metric).copied()).collect()
}

fn title(args: &FairnessArgs, case: &str) -> String {
    match case {
        "alone" => "one request at a time, nothing else".to_owned(),
        _ => format!("one request at a time, beside {} of another context", args.depth),
    }
}

fn table(args: &FairnessArgs, results: &Results) -> comfy_table::Table {
    let mut header = vec!["engine", "context of depth 1"];
    header.extend(COLUMNS.map(Metric::label));
    let mut table = new_table(&header);
    for (engine, case, samples) in results {
        let mut row = vec![Cell::new(engine), Cell::new(title(args, case))];
        row.extend(COLUMNS.map(|metric| {
            let summary = stats::summarize(&figures(samples, metric));
            right(summary.map_or("–".to_owned(), |it| with_spread(metric, &it)))
        }));
        table.add_row(row);
    }
    table
}

#[derive(Serialize)]
struct Params {
    rounds: u16,
    runtime_s: f64,
    size_bytes: u64,
    depth: u32,
    /// State of the page cache before each run.
    page_cache: &'static str,
    cases: Vec<CaseParams>,
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: String,
}

fn write(args: &FairnessArgs, results: &Results, notes: &[String]) -> Result<()> {
    let case = |(case, _): (&'static str, bool)| CaseParams { case, title: title(args, case) };
    let rows = results.iter().flat_map(|(engine, case, samples)| {
        let row = move |metric| Row::of(case, engine, metric, figures(samples, metric));
        Metric::ALL.into_iter().filter_map(row)
    });
    let document = Document {
        schema: SCHEMA,
        host: &Host::describe(&args.dir, "none"),
        workload: "fairness",
        params: Params {
            rounds: args.rounds,
            runtime_s: args.runtime.as_secs_f64(),
            size_bytes: args.size,
            depth: args.depth,
            page_cache: "pages of the file dropped before each run",
            cases: CASES.into_iter().map(case).collect(),
        },
        rows: rows.collect(),
        ratios: Vec::new(),
        verdicts: Vec::new(),
        notes,
    };
    args.reports.write(&document)
}

/// Sums up what the requests of a run took, in microseconds.
fn sample(mut latencies_us: Vec<f64>, seconds: f64) -> Sample {
    latencies_us.sort_unstable_by(f64::total_cmp);
    let count = latencies_us.len() as f64;
    let at = |share: f64| {
        let index = (count * share) as usize;
        latencies_us[index.min(latencies_us.len() - 1)]
    };
    Sample::from([
        (Metric::Iops, count / seconds),
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
    /// Reads block after block, `deep` or not beside a context that keeps many reads under way;
    /// returns how long they took.
    fn measure(&self, args: &FairnessArgs, deep: bool) -> Result<Sample> {
        memory::forget_peak();
        advise(self.near.as_raw_fd(), 0, 0, Advice::DontNeed)
            .map_err(crate::rig::failed("drop the page cache"))?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = deep.then(|| scope.spawn(|| self.keep_deep(args.depth, &over)));
            let measured = self.one_by_one(args.runtime);
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
        Ok(sample(latencies_us, start.elapsed().as_secs_f64()))
    }

    fn keep_deep(&self, depth: u32, over: &AtomicBool) -> Result<()> {
        let depth = depth as usize;
        let rig = Rig::new(self.engine, depth, depth * BLOCK)?;
        let mut random = SplitMix(2);
        let mut free: Vec<u64> = (0..depth as u64).collect();
        let mut places = vec![0; depth];
        let mut under_way = 0;
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
                under_way += transfers.len();
                rig.submit(self.far, Kind::Read, transfers.into_iter())?;
            }
            if under_way == 0 {
                return Ok(());
            }
            let checked = free.len();
            under_way -= rig.reap(under_way, BLOCK, |name| free.push(name))?;
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
    use crate::report::Saved;

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
        let args = FairnessArgs {
            depth: 200,
            rounds: 2,
            runtime: Duration::from_millis(5),
            size: 16 << 20,
            dir: folder.path().to_owned(),
            keep: false,
            reports: ReportArgs {
                json: Some(folder.path().join("fairness.json")),
                html: Some(folder.path().join("fairness.html")),
            },
        };
        run_fairness(&args).expect("some backend works");
        let saved = Saved::read(&folder.path().join("fairness.json")).expect("the figures");
        assert_eq!(saved.cases(), ["alone", "beside"]);
        assert!(saved.rows.iter().all(|row| row.runs().len() == 2));
        assert!(folder.path().join("fairness.html").exists());
    }
}
