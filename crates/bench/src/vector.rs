//! `bench vector`: one request with N segments against N requests, on a direct file; with io_uring
//! by hand beside it, which is what the kernel and the machine give.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nowait::{Kind, Segments};
use nowait_file::BackendChoice;
use nowait_sys::file::IoVec;
use serde::Serialize;

use crate::args::FOLDER;
use crate::error::{BenchError, Context as _, Result};
use crate::host::Host;
use crate::interleave::interleave;
use crate::interrupt;
use crate::job::Comparison;
use crate::layout::TestFile;
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::peers::segments::RingRig;
use crate::progress::Progress;
use crate::report::{self, Document, SCHEMA, VerdictRow};
use crate::rig::{Memory, Rig, Usage, engine};
use crate::runs::Runs;
use crate::stats::SplitMix;
use crate::table;
use crate::units::{parse_duration, parse_size};
use crate::verdict::{Judged, Outcome};
use crate::workload::Plan as Device;

const EXAMPLES: &str = "\
Examples:
  nowait bench vector                          8 and 16 segments, about a minute and a half
  nowait bench vector --runtime 300ms --rounds 5 --json vector.json";

/// Measures one request of many segments against as many requests, on a direct file.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct VectorArgs {
    /// Runs of each case; fewer than 5 give no verdict
    #[arg(long, value_name = "N", default_value = "7")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,

    /// Time of one run
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub runtime: Duration,

    /// Size of the file
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub size: u64,

    /// Memory in huge pages: a chunk is one piece to the device, however many segments it has
    #[arg(long)]
    pub huge: bool,

    /// Folder of the test file; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Keep the laid-out file for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Write the figures as JSON to a file, or instead of the tables to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Write a report to an HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Fail unless every target is met beyond the noise
    #[arg(long)]
    pub check: bool,
}

const BLOCK: usize = 4096;
/// Chunks under way at a time.
const CHUNKS: usize = 8;

/// How a chunk of adjoining blocks is read.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// A request for each block.
    Split,
    /// One request with a segment for each block.
    Vector,
}

/// Who carries the requests.
#[derive(Clone, Copy, PartialEq)]
enum Carrier {
    Nowait,
    /// io_uring by hand: one system call submits and waits.
    Ring,
}

/// The first two are judged.
const WAYS: [(Carrier, Way, &str); 4] = [
    (Carrier::Nowait, Way::Split, "split"),
    (Carrier::Nowait, Way::Vector, "vector"),
    (Carrier::Ring, Way::Split, "io_uring-split"),
    (Carrier::Ring, Way::Vector, "io_uring-vector"),
];
const CASES: [(usize, &str); 2] = [(8, "segments-8"), (16, "segments-16")];
/// Of the vectored way against the split one.
const TARGETS: [(Metric, Comparison, f64); 2] = [
    (Metric::CpuUsPerIo, Comparison::AtMost, 1.0 / 2.5),
    (Metric::BytesPerS, Comparison::AtLeast, 1.4),
];

struct Figures {
    case: &'static str,
    segments: usize,
    runs: Runs,
}

impl Figures {
    fn judged(&self) -> impl Iterator<Item = Judged> + '_ {
        TARGETS.into_iter().map(|(metric, comparison, limit)| {
            let (metric_name, sign) = (metric.label(), comparison.sign());
            let target = format!("{metric_name} of vector {sign} {limit:.2} × split");
            let ratio = self.runs.ratio(metric, WAYS[0].2, WAYS[1].2);
            Judged::new(target, comparison, limit, ratio)
        })
    }
}

/// Runs the cases, prints a table and the targets, and writes the JSON asked for.
///
/// # Errors
/// No io_uring here, a run failed, or `--check` was given and a target is not met.
pub fn run_vector(args: &VectorArgs) -> Result<()> {
    interrupt::install();
    report::prepare([&args.json, &args.html].into_iter().flatten().map(PathBuf::as_path))?;
    let file = TestFile::new(args.dir.join("nowait-bench.vector"), args.keep);
    let size = file.lay_out(args.size.max(16 << 20), 0, &|_| true, &|_| {})?;
    let options = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(file.path());
    let open = options.context(|| format!("open {} for direct I/O", file.path().display()))?;
    let mut all = Vec::new();
    for (segments, case) in CASES {
        let samples = interleave(&WAYS, usize::from(args.rounds), |round, (carrier, way, _)| {
            let (runtime, huge) = (args.runtime, args.huge);
            let plan = Plan { size, way: *way, segments, runtime, huge };
            one_run(&open, *carrier, &plan, round as u64)
        })?;
        let runs = WAYS.iter().map(|(.., name)| *name).zip(samples).collect();
        all.push(Figures { case, segments, runs });
        if interrupt::happened() {
            break;
        }
    }
    report::say(args.json.as_deref(), &text(&all));
    write(args, &all)?;
    interrupt::check()?;
    match all.iter().flat_map(Figures::judged).all(|judged| judged.outcome == Outcome::Met) {
        false if args.check => Err(BenchError::failed("a target is not met")),
        _ => Ok(()),
    }
}

/// The runs of a case by the way, and its name.
pub(crate) type CaseRuns = (&'static str, Runs);

/// Says which runs [`measure_on`] will make.
pub(crate) fn expect(progress: &Progress, device: &Device) {
    for (_, case) in CASES {
        for (.., way) in &WAYS[..2] {
            progress.expect(case, way, device.rounds, device.runtime.as_secs_f64());
        }
    }
}

/// Runs the cases on a file that is there, of the size of the plan.
///
/// # Errors
/// No io_uring here, no direct I/O, or a run failed.
pub(crate) fn measure_on(
    path: &Path,
    device: &Device,
    progress: &Progress,
) -> Result<Vec<CaseRuns>> {
    let options = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let open = options.context(|| format!("open {} for direct I/O", path.display()))?;
    let measure = |(segments, case)| {
        let ways = &WAYS[..2];
        let samples = interleave(ways, device.rounds, |round, (carrier, way, name)| {
            interrupt::check()?;
            progress.start(case, name, round);
            let (size, runtime) = (device.size_bytes, device.runtime);
            let plan = Plan { size, way: *way, segments, runtime, huge: false };
            let sample = one_run(&open, *carrier, &plan, round as u64);
            progress.finish_run();
            sample
        })?;
        Ok((case, ways.iter().map(|(.., name)| *name).zip(samples).collect()))
    };
    CASES.into_iter().map(measure).collect()
}

/// What one run reads.
struct Plan {
    size: u64,
    way: Way,
    segments: usize,
    runtime: Duration,
    huge: bool,
}

/// Reads random chunks for the plan's time, [`CHUNKS`] at a time.
fn one_run(file: &File, carrier: Carrier, plan: &Plan, seed: u64) -> Result<Sample> {
    let requests = CHUNKS * plan.segments;
    let memory = Memory::new(requests * BLOCK, plan.huge)?;
    match carrier {
        Carrier::Ring => plan.read(&mut RingRig::new(requests, memory)?, file, seed),
        Carrier::Nowait => {
            let engine = engine(BackendChoice::Uring)?;
            let sample = plan.read(&mut Rig::with_memory(&engine, requests, memory)?, file, seed);
            engine.shutdown();
            sample
        }
    }
}

impl Plan {
    fn read(&self, rig: &mut impl Carries, file: &File, seed: u64) -> Result<Sample> {
        let mut random = SplitMix(seed);
        let mut left = [0usize; CHUNKS];
        let mut free: Vec<usize> = (0..CHUNKS).collect();
        let (mut chunks, mut under_way) = (0u64, 0);
        memory::forget_peak();
        let cached = memory::page_cache_bytes();
        let (before, start) = (Usage::now(), Instant::now());
        loop {
            if start.elapsed() < self.runtime && !interrupt::happened() {
                let mut transfers = Vec::new();
                for slot in free.drain(..) {
                    left[slot] = self.add_chunk(&*rig, slot, random.next(), &mut transfers);
                    under_way += left[slot];
                }
                rig.submit(file, transfers)?;
            }
            if under_way == 0 {
                break;
            }
            under_way -= rig.reap(under_way, |name| {
                let slot = name as usize;
                left[slot] -= 1;
                if left[slot] == 0 {
                    free.push(slot);
                    chunks += 1;
                }
            })?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let blocks = chunks * self.segments as u64;
        let mut sample = Sample::new();
        Usage::now().since(before, blocks as f64, &mut sample);
        sample.insert(Metric::BytesPerS, (blocks * BLOCK as u64) as f64 / seconds);
        sample.insert(Metric::RssBytesMax, memory::peak_bytes());
        let growth = (memory::page_cache_bytes() - cached).max(0.0);
        sample.insert(Metric::PageCacheGrowthBytes, growth);
        Ok(sample)
    }

    /// Adds what reads a random chunk to the memory of `slot`; returns how many requests.
    fn add_chunk(
        &self,
        rig: &impl Carries,
        slot: usize,
        random: u64,
        transfers: &mut Vec<Transfer>,
    ) -> usize {
        let chunk = self.segments * BLOCK;
        let at = random % (self.size / chunk as u64) * chunk as u64;
        let part = |index| rig.segment(slot * chunk + index * BLOCK, BLOCK);
        let parts = (0..self.segments).map(part);
        match self.way {
            Way::Vector => {
                transfers.push((slot as u64, Segments::Many(parts.collect()), at));
                1
            }
            Way::Split => {
                transfers.extend(parts.enumerate().map(|(index, part)| {
                    (slot as u64, Segments::One(part), at + (index * BLOCK) as u64)
                }));
                self.segments
            }
        }
    }
}

/// A read: its name, its memory, its place in the file.
pub(crate) type Transfer = (u64, Segments, u64);

/// What carries reads.
pub(crate) trait Carries {
    /// Returns a part of the memory.
    fn segment(&self, offset: usize, len: usize) -> IoVec;

    /// Starts reads of `file` into parts of this memory.
    fn submit(&mut self, file: &File, transfers: Vec<Transfer>) -> Result<()>;

    /// Waits for at least one, takes all that are over, at most `max`, and gives their names to
    /// `sink`.
    fn reap(&mut self, max: usize, sink: impl FnMut(u64)) -> Result<usize>;
}

impl Carries for Rig {
    fn segment(&self, offset: usize, len: usize) -> IoVec {
        Rig::segment(self, offset, len)
    }

    fn submit(&mut self, file: &File, transfers: Vec<Transfer>) -> Result<()> {
        Rig::submit(self, file, Kind::Read, transfers.into_iter())
    }

    fn reap(&mut self, max: usize, sink: impl FnMut(u64)) -> Result<usize> {
        Rig::reap(self, max, sink)
    }
}

/// Prints every way of every case, and the targets.
fn text(all: &[Figures]) -> String {
    const COLUMNS: [Metric; 2] = [Metric::BytesPerS, Metric::CpuUsPerIo];
    let mut text = String::new();
    for figures in all {
        let runs = table::runs("way", &figures.runs, &COLUMNS);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}, an I/O is a block\n{runs}\n", figures.case);
    }
    let judged = all.iter().flat_map(|one| table::with_name(one.case, one.judged()));
    text + &table::targets(judged) + &table::notes(&[])
}

#[derive(Serialize)]
struct Params {
    rounds: u16,
    runtime_s: f64,
    chunks: usize,
    block_bytes: usize,
    size_bytes: u64,
    /// State of the page cache before each run.
    page_cache: &'static str,
    huge_pages: bool,
    /// What the names of the ways mean.
    engines: BTreeMap<&'static str, &'static str>,
    cases: Vec<CaseParams>,
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: String,
    segments: usize,
}

fn write(args: &VectorArgs, all: &[Figures]) -> Result<()> {
    let ways = (WAYS[0].2, WAYS[1].2);
    let ratios = |figures: &Figures| figures.runs.ratio_rows(figures.case, [ways], &Metric::ALL);
    let verdicts = all
        .iter()
        .flat_map(|figures| figures.judged().map(|judged| VerdictRow::of(figures.case, judged)));
    let document = Document {
        schema: SCHEMA,
        host: &Host::describe(&args.dir, "none"),
        workload: "vector",
        params: params(args, all),
        rows: all.iter().flat_map(|figures| figures.runs.rows(figures.case)).collect(),
        ratios: all.iter().flat_map(ratios).collect(),
        verdicts: verdicts.collect(),
        notes: &[],
    };
    report::write(&document, args.json.as_deref(), args.html.as_deref())
}

fn params(args: &VectorArgs, all: &[Figures]) -> Params {
    let case = |figures: &Figures| CaseParams {
        case: figures.case,
        title: format!("random chunks of {} adjoining blocks, direct", figures.segments),
        segments: figures.segments,
    };
    Params {
        rounds: args.rounds,
        runtime_s: args.runtime.as_secs_f64(),
        chunks: CHUNKS,
        block_bytes: BLOCK,
        size_bytes: args.size,
        page_cache: "not used: O_DIRECT",
        huge_pages: args.huge,
        engines: BTreeMap::from([
            ("split", "a request for each block"),
            ("vector", "one request with a segment for each block"),
            ("io_uring-split", "the same as split by io_uring, one system call to submit and wait"),
            ("io_uring-vector", "the same as vector by io_uring"),
        ]),
        cases: all.iter().map(case).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_read_every_block() {
        let folder = tempfile::tempdir_in(FOLDER).expect("a folder");
        let args = VectorArgs {
            rounds: 1,
            runtime: Duration::from_millis(5),
            size: 16 << 20,
            huge: false,
            dir: folder.path().to_owned(),
            keep: false,
            json: Some(folder.path().join("vector.json")),
            html: Some(folder.path().join("vector.html")),
            check: false,
        };
        if let Err(error) = run_vector(&args) {
            return nowait_block::conformance::note_skip_here(&error.to_string());
        }
        let text = std::fs::read_to_string(folder.path().join("vector.json")).expect("the figures");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(40));
        assert!(json["rows"][0]["median"].as_f64().is_some_and(|figure| figure > 0.0));
    }
}
