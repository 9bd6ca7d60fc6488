//! The blocks to read, the number of tasks and the time limit; and the measured figures.

use crate::memory::{BLOCK, Block};
use core::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};
use hdrhistogram::Histogram;
use nowait_harness::{
    order::{Access, Order},
    pattern,
    usage::Used,
};
use serde::Deserialize;
use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::IntoRawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
    thread,
    time::Instant,
};

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Load {
    /// The test file of the benchmark, each word of which depends on its place.
    pub(crate) path: PathBuf,
    /// Bytes of the file to read from.
    pub(crate) size: u64,
    pub(crate) reads: Reads,
    tasks: usize,
    seed: u64,
    runtime_ms: u64,
}

/// The source of the reads: the page cache, the disk with each block once, or direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reads {
    Cached,
    Uncached,
    Direct,
}

pub(crate) type Report = serde_json::Value;

impl Load {
    pub(crate) fn is_direct(&self) -> bool {
        self.reads == Reads::Direct
    }

    pub(crate) fn is_once(&self) -> bool {
        self.reads == Reads::Uncached
    }

    fn is_timed(&self) -> bool {
        self.reads != Reads::Cached
    }

    pub(crate) fn open(&self) -> io::Result<File> {
        let flags = if self.is_direct() { libc::O_DIRECT } else { 0 };
        OpenOptions::new().read(true).custom_flags(flags).open(&self.path)
    }

    /// Returns the path of a sparse file as large as the test file. It fills nowait's page cache
    /// before the run.
    pub(crate) fn another(&self) -> io::Result<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        let file = options.open(folder)?;
        file.set_len(self.size)?;
        // The file stays open until the program ends.
        Ok(PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd())))
    }

    pub(crate) fn on_threads(
        &self,
        threads: usize,
        way: impl Fn(&Load, Rc<Share>) -> io::Result<()> + Copy + Send + Sync,
    ) -> io::Result<Report> {
        let (before, start) = (Used::now().map_err(io::Error::other)?, Instant::now());
        let one = |index| {
            let share = Rc::new(Share::new(self, index, threads));
            way(self, share.clone()).map(|()| share.end())
        };
        let ended: Vec<io::Result<(u64, Histogram<u64>)>> = thread::scope(|scope| {
            let one = &one;
            let running: Vec<_> =
                (0..threads).map(|index| scope.spawn(move || one(index))).collect();
            running.into_iter().map(|it| it.join().expect("a thread that reads")).collect()
        });
        let seconds = start.elapsed().as_secs_f64();
        let used = Used::now().map_err(io::Error::other)?.less(before);
        let (mut reads, mut latency_ns) = (0, histogram());
        for one in ended {
            let (count, latencies) = one?;
            reads += count;
            latency_ns.add(latencies).map_err(io::Error::other)?;
        }
        if reads == 0 {
            return Err(io::Error::other("no read has ended"));
        }
        let mut report = serde_json::json!({
            "iops": reads as f64 / seconds,
            "cpu_us_per_io": used.cpu_us / reads as f64,
        });
        if self.is_timed() {
            let us = |quantile| latency_ns.value_at_quantile(quantile) as f64 / 1e3;
            report["latency_us_p50"] = us(0.5).into();
            report["latency_us_p99"] = us(0.99).into();
            report["latency_us_max"] = us(1.0).into();
        }
        Ok(report)
    }
}

/// A task yields after this many of its own reads. A thread checks the time after this many reads
/// of all its tasks.
const TURN: u64 = 16;

pub(crate) struct Share {
    pub(crate) tasks: usize,
    timed: bool,
    end: Instant,
    /// The first byte of this thread's part of the file, and the order of its blocks.
    first: u64,
    order: Order,
    once: bool,
    begun: Cell<u64>,
    done: Cell<u64>,
    over: Cell<bool>,
    latency_ns: RefCell<Histogram<u64>>,
}

impl Share {
    fn new(load: &Load, index: usize, threads: usize) -> Share {
        let access = if load.is_once() { Access::Random } else { Access::Uniform };
        let bytes = load.size / BLOCK as u64 / threads as u64 * BLOCK as u64;
        Share {
            tasks: load.tasks,
            timed: load.is_timed(),
            end: Instant::now() + Duration::from_millis(load.runtime_ms),
            first: index as u64 * bytes,
            order: Order::new(access, bytes, BLOCK as u64, load.seed),
            once: load.is_once(),
            begun: Cell::new(0),
            done: Cell::new(0),
            over: Cell::new(false),
            latency_ns: RefCell::new(histogram()),
        }
    }

    fn next(&self) -> Option<u64> {
        let begun = self.begun.get();
        if begun.is_multiple_of(TURN) && Instant::now() >= self.end
            || self.once && begun == self.order.blocks()
        {
            self.over.set(true);
        }
        if self.over.get() {
            return None;
        }
        self.begun.set(begun + 1);
        Some(self.first + self.order.at(begun))
    }

    fn end(&self) -> (u64, Histogram<u64>) {
        (self.done.get(), self.latency_ns.borrow().clone())
    }
}

pub(crate) async fn task<F>(share: Rc<Share>, read: impl Fn(Block, u64) -> F) -> io::Result<()>
where
    F: Future<Output = (io::Result<usize>, Block)>,
{
    let mut block = Block::new();
    let mut turn = 0;
    while let Some(offset) = share.next() {
        let start = share.timed.then(Instant::now);
        let (count, filled) = read(block, offset).await;
        if count? != BLOCK || !pattern::is_laid_out(offset, filled.bytes()) {
            return Err(io::Error::other(format!("a read at byte {offset} gave wrong bytes")));
        }
        if let Some(start) = start {
            share.latency_ns.borrow_mut().saturating_record(start.elapsed().as_nanos() as u64);
        }
        share.done.set(share.done.get() + 1);
        block = filled;
        turn += 1;
        if turn % TURN == 0 {
            let_others().await;
        }
    }
    Ok(())
}

/// Lets other tasks run: returns `Pending` once, with the task woken.
async fn let_others() {
    let mut again = false;
    poll_fn(|cx| {
        if again {
            return Poll::Ready(());
        }
        again = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn histogram() -> Histogram<u64> {
    const LONGEST_NS: u64 = 60_000_000_000;
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("three digits")
}
