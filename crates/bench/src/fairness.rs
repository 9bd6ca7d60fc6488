//! `bench fairness`: what a context with one request at a time waits for beside one with
//! ten thousand.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::Cell;
use nowait::{Engine, Kind, Segments};
use nowait_file::BackendChoice;
use nowait_sys::file::{Advice, advise};
use std::os::fd::AsRawFd;

use crate::args::FOLDER;
use crate::error::{BenchError, Context as _, Result};
use crate::layout::TestFile;
use crate::metric::Metric;
use crate::rig::{Rig, engine};
use crate::stats::{self, SplitMix};
use crate::table::{figure, new_table, right};
use crate::units::{parse_duration, parse_size};

const EXAMPLES: &str = "\
Examples:
  nowait bench fairness                        every backend, about half a minute
  nowait bench fairness --depth 1000 --runtime 500ms";

/// Measures how long single requests take beside a context with thousands.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct FairnessArgs {
    /// Requests that the other context has under way
    #[arg(long, value_name = "N", default_value = "10000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub depth: u32,

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
}

const BLOCK: usize = 4096;
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
    let layout = TestFile::new(args.dir.join("nowait-bench.fairness"), args.keep);
    let size = layout.lay_out(args.size.max(16 << 20), 0, &|_| true, &|_| {})?;
    let open = || {
        let file = OpenOptions::new().read(true).open(layout.path());
        file.context(|| format!("open {}", layout.path().display()))
    };
    let (near, far) = (open()?, open()?);
    let beside = format!("beside {}", args.depth);
    let p50 = Metric::LatencyUsP50.label();
    let p99 = Metric::LatencyUsP99.label();
    let mut table =
        new_table(&["engine", "context of depth 1", "requests", p50, p99, "longest ms"]);
    for (backend, name) in BACKENDS {
        let engine = match engine(backend) {
            Ok(engine) => engine,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        for deep in [false, true] {
            let run = Run { engine: &engine, near: &near, far: &far, blocks: size / BLOCK as u64 };
            let mut latencies_us = run.measure(args, deep)?;
            latencies_us.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| latencies_us[(latencies_us.len() as f64 * share) as usize];
            table.add_row([
                Cell::new(name),
                Cell::new(if deep { beside.as_str() } else { "alone" }),
                right(latencies_us.len()),
                right(figure(Metric::LatencyUsP50, stats::median(&latencies_us).unwrap_or(0.0))),
                right(figure(Metric::LatencyUsP99, at(0.99))),
                right(format!("{:.1}", latencies_us.last().unwrap_or(&0.0) / 1e3)),
            ]);
        }
        engine.shutdown();
    }
    println!("Buffered reads of random uncached blocks of 4 KiB, from submission to completion.");
    println!("{table}");
    Ok(())
}

struct Run<'a> {
    engine: &'a Arc<Engine>,
    near: &'a File,
    far: &'a File,
    blocks: u64,
}

impl Run<'_> {
    /// Reads block after block, `deep` or not beside a context that keeps many reads under way;
    /// returns how long each took, in microseconds.
    fn measure(&self, args: &FairnessArgs, deep: bool) -> Result<Vec<f64>> {
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

    fn one_by_one(&self, runtime: Duration) -> Result<Vec<f64>> {
        let rig = Rig::new(self.engine, 8, BLOCK)?;
        let (mut random, mut latencies_us) = (SplitMix(1), Vec::new());
        let start = Instant::now();
        while start.elapsed() < runtime || latencies_us.is_empty() {
            let at = random.next() % self.blocks * BLOCK as u64;
            let begun = Instant::now();
            let part = Segments::One(rig.segment(0, BLOCK));
            rig.submit(self.near, Kind::Read, [(0, part, at)].into_iter())?;
            rig.reap(1, |_| {})?;
            latencies_us.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        Ok(latencies_us)
    }

    fn keep_deep(&self, depth: u32, over: &AtomicBool) -> Result<()> {
        let depth = depth as usize;
        let rig = Rig::new(self.engine, depth, depth * BLOCK)?;
        let mut random = SplitMix(2);
        let mut free: Vec<u64> = (0..depth as u64).collect();
        let mut under_way = 0;
        loop {
            if !over.load(Relaxed) {
                let transfers: Vec<_> = free
                    .drain(..)
                    .map(|name| {
                        let at = random.next() % self.blocks * BLOCK as u64;
                        (name, Segments::One(rig.segment(name as usize * BLOCK, BLOCK)), at)
                    })
                    .collect();
                under_way += transfers.len();
                rig.submit(self.far, Kind::Read, transfers.into_iter())?;
            }
            if under_way == 0 {
                return Ok(());
            }
            under_way -= rig.reap(under_way, |name| free.push(name))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_requests_go_on_beside_many() {
        let folder = tempfile::tempdir_in(FOLDER).expect("a folder");
        let args = FairnessArgs {
            depth: 200,
            runtime: Duration::from_millis(5),
            size: 16 << 20,
            dir: folder.path().to_owned(),
            keep: false,
        };
        run_fairness(&args).expect("some backend works");
    }
}
