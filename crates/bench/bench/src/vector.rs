//! `bench vector`: one request with N segments against N requests, on a direct file; with io_uring
//! by hand beside it, which is what the kernel and the machine give.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nowait_engine::{BackendChoice, Kind, Segments};
use serde_json::json;

use crate::args::{Defaults, Extent, FOLDER, MeasureArgs};
use crate::case::{Case, Subject, Target, name};
use crate::error::{Context as _, Result};
use crate::host::Host;
use crate::interrupt;
use crate::layout::TestFile;
use crate::measurement::{CaseResults, Measurement};
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::peers::segments::RingRig;
use crate::progress::Progress;
use crate::rig::{Memory, Rig, engine, wrong_bytes};
use crate::runner;
use crate::stats::SplitMix;
use crate::usage::Used;

const EXAMPLES: &str = "\
Seven runs of 1 s on a file of 1G; with --quick 300 ms.

Examples:
  nowait bench vector                          8 and 16 segments, about a minute and a half
  nowait bench vector --runtime 300ms --rounds 5 --json vector.json";

const DEFAULTS: Defaults = Defaults {
    rounds: 7,
    runtime_ms: [1000, 300],
    size_bytes: [1 << 30; 2],
    least_bytes: 16 << 20,
};

/// Measures one request of many segments against as many requests, on a direct file.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct VectorArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Memory in huge pages: a chunk is one piece to the device, however many segments it has
    #[arg(long)]
    pub huge: bool,

    /// Folder of the test file; the file system under test
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,
}

const BLOCK: usize = 4096;
/// Chunks in flight at a time.
const CHUNKS: usize = 8;

/// How a chunk of adjoining blocks is read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// A request for each block.
    Split,
    /// One request with a segment for each block.
    Vector,
}

/// The way to carry out the requests.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Carrier {
    Nowait,
    /// io_uring by hand: one system call submits and waits.
    Ring,
}

/// How a subject reads chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks {
    carrier: Carrier,
    way: Way,
    segments: usize,
    huge: bool,
}

/// The first two are judged.
const WAYS: [(&str, Carrier, Way, &str); 4] = [
    ("split", Carrier::Nowait, Way::Split, "a request for each block"),
    ("vector", Carrier::Nowait, Way::Vector, "one request with a segment for each block"),
    (
        "io_uring-split",
        Carrier::Ring,
        Way::Split,
        "the same as split by io_uring, one system call to submit and wait",
    ),
    ("io_uring-vector", Carrier::Ring, Way::Vector, "the same as vector by io_uring"),
];
const CASES: [(usize, &str); 2] = [(8, "segments-8"), (16, "segments-16")];
/// Targets of the vectored way against the split one.
const TARGETS: [Target; 2] = [
    Target::at_most(Metric::CpuUsPerIo, "vector", 1.0 / 2.5, "split"),
    Target::at_least(Metric::BytesPerS, "vector", 1.4, "split"),
];

/// Makes a case for each number of segments, with so many of the ways.
fn cases(ways: usize, huge: bool) -> Vec<Case<Chunks>> {
    let case = |(segments, case_name)| {
        let subject =
            |&(way_name, carrier, way, about): &(&'static str, Carrier, Way, &'static str)| {
                let job = Chunks { carrier, way, segments, huge };
                Subject { name: way_name, engine: (way_name, about), job }
            };
        Case {
            name: case_name,
            title: format!("random chunks of {segments} adjoining blocks, direct"),
            about: "An I/O is a block.",
            source: String::new(),
            columns: &[Metric::BytesPerS, Metric::CpuUsPerIo],
            subjects: WAYS[..ways].iter().map(subject).collect(),
            targets: TARGETS.to_vec(),
        }
    };
    CASES.into_iter().map(case).collect()
}

/// Makes the cases of the ways that are judged, held against what a source says.
pub(crate) fn cases_of_source(row: &str) -> Vec<Case<Chunks>> {
    let of_source = |case: Case<Chunks>| Case {
        name: name(format!("{row}-{}", case.name)),
        title: "4 KiB blocks that adjoin, direct: a request each (split) → one of all (vector)"
            .to_owned(),
        source: "up to 2 : 1 in CPU time; readv against a loop ÷5".to_owned(),
        columns: &[Metric::BytesPerS, Metric::CpuUsPerIo, Metric::ContextSwitchesPerIo],
        targets: vec![Target::at_most(Metric::CpuUsPerIo, "vector", 0.5, "split")],
        ..case
    };
    cases(2, false).into_iter().map(of_source).collect()
}

/// Runs the cases, prints a table and the targets, and writes the JSON asked for.
///
/// # Errors
/// No io_uring here, a run failed, or `--check` was given and a target is not met.
pub(crate) fn run_vector(args: &VectorArgs) -> Result<Option<Measurement>> {
    let extent = args.measure.extent(&DEFAULTS)?;
    let cases = args.measure.select_subjects(cases(WAYS.len(), args.huge))?;
    args.measure.run(cases, |cases| {
        let progress = Progress::new();
        let path = args.dir.join("nowait-bench.vector");
        let file = TestFile::with_pattern(path, args.measure.keep);
        let size_bytes = extent.size_bytes;
        let laid_out = |written| progress.laying_out(written, size_bytes);
        file.lay_out(size_bytes, 0, &|_| true, &laid_out)?;
        let open = open_direct(file.path())?;
        runner::expect(&progress, &cases, extent.rounds, |_| extent.runtime.as_secs_f64());
        progress.start_runs();
        let cases = measure(&open, &cases, &extent, &progress)?;
        let params = json!({
            "rounds": extent.rounds,
            "runtime_s": extent.runtime.as_secs_f64(),
            "chunks": CHUNKS,
            "block_bytes": BLOCK,
            "size_bytes": size_bytes,
            "page_cache": "not used: O_DIRECT",
            "huge_pages": args.huge,
        });
        Ok(Measurement::new("vector", Host::describe(&args.dir, "none"), params, cases))
    })
}

/// Opens a file for the runs, if they can be made here.
///
/// # Errors
/// No io_uring here, or no direct I/O.
pub(crate) fn open(path: &Path) -> Result<File> {
    engine(BackendChoice::Uring)?.shutdown();
    open_direct(path)
}

fn open_direct(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    file.context(|| format!("open {} for direct I/O", path.display()))
}

/// Runs the cases on a file that is laid out, one after the other.
///
/// # Errors
/// A run failed or read wrong bytes.
pub(crate) fn measure(
    file: &File,
    cases: &[Case<Chunks>],
    extent: &Extent,
    progress: &Progress,
) -> Result<Vec<CaseResults>> {
    let mut all = Vec::new();
    for case in cases {
        let one = std::slice::from_ref(case);
        let runs = runner::measure(progress, one, extent.rounds, |_, subject, round| {
            let plan =
                Plan { chunks: subject.job, size: extent.size_bytes, runtime: extent.runtime };
            one_run(file, &plan, round as u64).map(Some)
        })?;
        for runs in runs.into_iter().map(|runs| runs.only(|_| true)).filter(|it| !it.is_empty()) {
            let segments = json!({ "segments": case.subjects[0].job.segments });
            all.push(CaseResults::new(case, runs, segments));
        }
    }
    Ok(all)
}

/// The reads of one run.
struct Plan {
    chunks: Chunks,
    size: u64,
    runtime: Duration,
}

/// Reads random chunks for the plan's time, [`CHUNKS`] at a time.
fn one_run(file: &File, plan: &Plan, seed: u64) -> Result<Sample> {
    let requests = CHUNKS * plan.chunks.segments;
    let memory = Memory::new(requests * BLOCK, plan.chunks.huge)?;
    match plan.chunks.carrier {
        Carrier::Ring => plan.read(&mut RingRig::new(requests, memory)?, file, seed),
        Carrier::Nowait => {
            let engine = engine(BackendChoice::Uring)?;
            let sample = plan.read(&mut Rig::with_memory(&engine, requests, memory)?, file, seed);
            engine.shutdown();
            sample
        }
    }
}

/// Memory for a chunk: its requests that are in flight, and where it is in the file.
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
        let (mut chunks, mut in_flight) = (0u64, 0);
        memory::forget_peak();
        let cached = memory::page_cache_bytes();
        let (before, start) = (Used::now()?, Instant::now());
        loop {
            if start.elapsed() < self.runtime && !interrupt::happened() {
                let mut transfers = Vec::new();
                for slot in free.drain(..) {
                    slots[slot] = self.add_chunk(&*rig, slot, random.next(), &mut transfers);
                    in_flight += slots[slot].left;
                }
                rig.submit(file, transfers)?;
            }
            if in_flight == 0 {
                break;
            }
            let checked = free.len();
            in_flight -= rig.reap(in_flight, self.request_bytes(), |name| {
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
        let blocks = chunks * self.chunks.segments as u64;
        let mut sample = Used::now()?.less(before).for_each_of(blocks as f64);
        sample.insert(Metric::BytesPerS, (blocks * BLOCK as u64) as f64 / seconds);
        sample.insert(Metric::RssBytesMax, memory::peak_bytes());
        let growth = (memory::page_cache_bytes() - cached).max(0.0);
        sample.insert(Metric::PageCacheGrowthBytes, growth);
        Ok(sample)
    }

    /// Returns what a request reads.
    fn request_bytes(&self) -> usize {
        match self.chunks.way {
            Way::Vector => self.chunks.segments * BLOCK,
            Way::Split => BLOCK,
        }
    }

    /// Fails unless the memory of `slot`, whose requests are over, holds the chunk at byte `at`.
    fn check(&self, rig: &impl Carries, slot: usize, at: u64) -> Result<()> {
        let chunk = self.chunks.segments * BLOCK;
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
        let chunk = self.chunks.segments * BLOCK;
        let at = random % (self.size / chunk as u64) * chunk as u64;
        let part = |index| rig.memory().segment(slot * chunk + index * BLOCK, BLOCK);
        let parts = (0..self.chunks.segments).map(part);
        let left = match self.chunks.way {
            Way::Vector => {
                transfers.push((slot as u64, Segments::Many(parts.collect()), at));
                1
            }
            Way::Split => {
                transfers.extend(parts.enumerate().map(|(index, part)| {
                    (slot as u64, Segments::One(part), at + (index * BLOCK) as u64)
                }));
                self.chunks.segments
            }
        };
        Slot { left, at }
    }
}

/// A read: its name, its memory, its place in the file.
pub(crate) type Transfer = (u64, Segments, u64);

/// A way to carry out reads.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern;
    use crate::testing::parse;

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
        let failure = |subject: &Subject<Chunks>| {
            let (runtime, size) = (Duration::from_millis(1), 8 * BLOCK as u64);
            let plan = Plan { chunks: subject.job, size, runtime };
            one_run(&file, &plan, 1).err().map(|error| error.to_string())
        };
        Some(cases(WAYS.len(), false)[0].subjects.iter().filter_map(failure).collect())
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
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (dir, json, html) = (path("."), path("vector.json"), path("vector.html"));
        let small = ["--rounds=1", "--runtime=50ms", "--size=16M", "--dir", &dir];
        let reports = ["--json", &json, "--html", &html];
        if let Err(error) = run_vector(&parse(&[&small[..], &reports].concat())) {
            return nowait_block::conformance::note_skip_here(&error.to_string());
        }
        let text = std::fs::read_to_string(folder.path().join("vector.json")).expect("the figures");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(40));
        assert!(json["rows"][0]["median"].as_f64().is_some_and(|figure| figure > 0.0));
    }
}
