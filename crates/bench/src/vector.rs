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
use serde::Serialize;

use crate::args::{FOLDER, at_least};
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
use crate::report::{Document, ReportArgs, SCHEMA, VerdictRow};
use crate::rig::{Memory, Rig, Usage, engine, wrong_bytes};
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

    /// Reports to write
    #[command(flatten)]
    pub reports: ReportArgs,

    /// Fail unless every target is met beyond the noise
    #[arg(long)]
    pub check: bool,
}

const BLOCK: usize = 4096;
/// The smallest file that says anything.
const SIZE_BYTES_MIN: u64 = 16 << 20;
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
    let size = at_least(args.size, SIZE_BYTES_MIN)?;
    args.reports.prepare()?;
    let file = TestFile::with_pattern(args.dir.join("nowait-bench.vector"), args.keep);
    let progress = Progress::new();
    let laid_out = |written| progress.laying_out(written, size);
    file.lay_out(size, 0, &|_| true, &laid_out)?;
    let open = open_direct(file.path())?;
    let (runtime, huge) = (args.runtime, args.huge);
    let series = Series { ways: &WAYS, size, rounds: usize::from(args.rounds), runtime, huge };
    series.expect(&progress);
    progress.start_runs();
    let all = series.measure(&open, &progress)?;
    // The line of the progress ends before the report begins.
    drop(progress);
    args.reports.say(&text(&all));
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
    Series::on(device).expect(progress);
}

/// Opens a file for the runs, if they can be made here.
///
/// # Errors
/// No io_uring here, or no direct I/O.
pub(crate) fn open(path: &Path) -> Result<File> {
    engine(BackendChoice::Uring)?.shutdown();
    open_direct(path)
}

/// Runs the cases on a file that is there, of the size of the plan.
///
/// # Errors
/// A run failed or read wrong bytes, or the user asked to stop.
pub(crate) fn measure_on(
    file: &File,
    device: &Device,
    progress: &Progress,
) -> Result<Vec<CaseRuns>> {
    let all = Series::on(device).measure(file, progress)?;
    interrupt::check()?;
    Ok(all.into_iter().map(|figures| (figures.case, figures.runs)).collect())
}

fn open_direct(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    file.context(|| format!("open {} for direct I/O", path.display()))
}

/// The runs of all cases.
struct Series {
    ways: &'static [(Carrier, Way, &'static str)],
    size: u64,
    rounds: usize,
    runtime: Duration,
    huge: bool,
}

impl Series {
    /// The ways that are judged, on a device.
    fn on(device: &Device) -> Series {
        let (size, rounds, runtime) = (device.size_bytes, device.rounds, device.runtime);
        Series { ways: &WAYS[..2], size, rounds, runtime, huge: false }
    }

    fn expect(&self, progress: &Progress) {
        for (_, case) in CASES {
            for (.., way) in self.ways {
                progress.expect(case, way, self.rounds, self.runtime.as_secs_f64());
            }
        }
    }

    /// Makes the runs, until the user asks to stop.
    fn measure(&self, file: &File, progress: &Progress) -> Result<Vec<Figures>> {
        let mut all = Vec::new();
        for (segments, case) in CASES {
            let samples = interleave(self.ways, self.rounds, |round, (carrier, way, name)| {
                progress.start(case, name, round);
                let (size, runtime, huge) = (self.size, self.runtime, self.huge);
                let plan = Plan { size, way: *way, segments, runtime, huge };
                let sample = one_run(file, *carrier, &plan, round as u64);
                progress.finish_run();
                sample
            })?;
            let runs = self.ways.iter().map(|(.., name)| *name).zip(samples).collect();
            all.push(Figures { case, segments, runs });
            if interrupt::happened() {
                break;
            }
        }
        Ok(all)
    }
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

/// Memory for a chunk: its requests that are under way, and where it is in the file.
#[derive(Clone, Copy, Default)]
struct Slot {
    left: usize,
    at: u64,
}

impl Plan {
    fn read(&self, rig: &mut impl Carries, file: &File, seed: u64) -> Result<Sample> {
        let mut random = SplitMix(seed);
        let mut slots = [Slot::default(); CHUNKS];
        let mut free: Vec<usize> = (0..CHUNKS).collect();
        let (mut chunks, mut under_way) = (0u64, 0);
        memory::forget_peak();
        let cached = memory::page_cache_bytes();
        let (before, start) = (Usage::now(), Instant::now());
        loop {
            if start.elapsed() < self.runtime && !interrupt::happened() {
                let mut transfers = Vec::new();
                for slot in free.drain(..) {
                    slots[slot] = self.add_chunk(&*rig, slot, random.next(), &mut transfers);
                    under_way += slots[slot].left;
                }
                rig.submit(file, transfers)?;
            }
            if under_way == 0 {
                break;
            }
            let checked = free.len();
            under_way -= rig.reap(under_way, self.request_bytes(), |name| {
                let slot = name as usize;
                slots[slot].left -= 1;
                if slots[slot].left == 0 {
                    free.push(slot);
                }
            })?;
            chunks += (free.len() - checked) as u64;
            // The same for a block of either way: a word of each is looked at.
            for slot in &free[checked..] {
                self.check(&*rig, *slot, slots[*slot].at)?;
            }
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

    /// Returns what a request reads.
    fn request_bytes(&self) -> usize {
        match self.way {
            Way::Vector => self.segments * BLOCK,
            Way::Split => BLOCK,
        }
    }

    /// Fails unless the memory of `slot`, whose requests are over, holds the chunk at byte `at`.
    fn check(&self, rig: &impl Carries, slot: usize, at: u64) -> Result<()> {
        let chunk = self.segments * BLOCK;
        // SAFETY: the slot is inside the memory, and free: its requests have ended.
        match unsafe { rig.memory().is_in_place(slot * chunk, chunk, at) } {
            true => Ok(()),
            false => Err(wrong_bytes(at)),
        }
    }

    /// Adds what reads a random chunk to the memory of `slot`.
    fn add_chunk(
        &self,
        rig: &impl Carries,
        slot: usize,
        random: u64,
        transfers: &mut Vec<Transfer>,
    ) -> Slot {
        let chunk = self.segments * BLOCK;
        let at = random % (self.size / chunk as u64) * chunk as u64;
        let part = |index| rig.memory().segment(slot * chunk + index * BLOCK, BLOCK);
        let parts = (0..self.segments).map(part);
        let left = match self.way {
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
        };
        Slot { left, at }
    }
}

/// A read: its name, its memory, its place in the file.
pub(crate) type Transfer = (u64, Segments, u64);

/// What carries reads.
pub(crate) trait Carries {
    /// Returns the memory of the reads.
    fn memory(&self) -> &Memory;

    /// Starts reads of `file` into parts of this memory.
    fn submit(&mut self, file: &File, transfers: Vec<Transfer>) -> Result<()>;

    /// Waits for at least one, takes all that are over, at most `max`, and gives their names to
    /// `sink`.
    ///
    /// # Errors
    /// One of them has not read `expected_bytes`.
    fn reap(&mut self, max: usize, expected_bytes: usize, sink: impl FnMut(u64)) -> Result<usize>;
}

impl Carries for Rig {
    fn memory(&self) -> &Memory {
        Rig::memory(self)
    }

    fn submit(&mut self, file: &File, transfers: Vec<Transfer>) -> Result<()> {
        Rig::submit(self, file, Kind::Read, transfers.into_iter())
    }

    fn reap(&mut self, max: usize, expected_bytes: usize, sink: impl FnMut(u64)) -> Result<usize> {
        Rig::reap(self, max, expected_bytes, sink)
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
    args.reports.write(&document)
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
    use crate::pattern;

    /// One short run of each way on a file with these contents; why they failed, if they did.
    fn run_on(contents: &[u8]) -> Option<Vec<String>> {
        let folder = tempfile::tempdir_in(FOLDER).expect("a folder");
        let path = folder.path().join("data");
        std::fs::write(&path, contents).expect("written");
        let file = match open(&path) {
            Ok(file) => file,
            Err(error) => {
                nowait_block::conformance::note_skip_here(&error.to_string());
                return None;
            }
        };
        let failure = |(carrier, way, _): (Carrier, Way, &str)| {
            let runtime = Duration::from_millis(1);
            let plan = Plan { size: 8 * BLOCK as u64, way, segments: 8, runtime, huge: false };
            one_run(&file, carrier, &plan, 1).err().map(|error| error.to_string())
        };
        Some(WAYS.into_iter().filter_map(failure).collect())
    }

    #[test]
    fn a_short_read_or_a_wrong_byte_is_a_failure() {
        let mut contents = vec![0; 8 * BLOCK];
        pattern::fill(0, &mut contents);
        let Some(failures) = run_on(&contents) else { return };
        assert_eq!(failures, [""; 0]);
        let failures = run_on(&contents[..5 * BLOCK]).expect("as before");
        assert!(failures.iter().all(|why| why.contains("instead of")), "{failures:?}");
        assert_eq!(failures.len(), WAYS.len(), "{failures:?}");
        contents[6 * BLOCK] ^= 1;
        let failures = run_on(&contents).expect("as before");
        assert!(failures.iter().all(|why| why.contains("wrong bytes")), "{failures:?}");
        assert_eq!(failures.len(), WAYS.len(), "{failures:?}");
    }

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
            reports: ReportArgs {
                json: Some(folder.path().join("vector.json")),
                html: Some(folder.path().join("vector.html")),
            },
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
