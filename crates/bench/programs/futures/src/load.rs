//! The blocks to read, the number of tasks and the time limit; and the measured figures.

use crate::memory::{BLOCK, Block};
use core::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};
use hdrhistogram::Histogram;
use serde::Deserialize;
use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, IntoRawFd},
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    rc::Rc,
    thread,
    time::Instant,
};

/// The work of all ways.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Load {
    /// The test file of the benchmark, each word of which depends on its place.
    pub(crate) path: PathBuf,
    /// Bytes of the file to read from.
    pub(crate) size: u64,
    pub(crate) reads: Reads,
    /// Tasks of a thread, each with one read at a time.
    tasks: usize,
    /// Seed of the order of blocks.
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

/// The figures of all threads, by the names of metrics.
pub(crate) type Report = serde_json::Value;

impl Load {
    pub(crate) fn is_direct(&self) -> bool {
        self.reads == Reads::Direct
    }

    /// Returns `true` if no block is read twice.
    pub(crate) fn is_once(&self) -> bool {
        self.reads == Reads::Uncached
    }

    /// Returns `true` if the time of each read is taken.
    fn is_timed(&self) -> bool {
        self.reads != Reads::Cached
    }

    /// Opens the file as standard Rust does.
    pub(crate) fn open(&self) -> io::Result<File> {
        let flags = if self.is_direct() { libc::O_DIRECT } else { 0 };
        OpenOptions::new().read(true).custom_flags(flags).open(&self.path)
    }

    /// Reads all of the file into the page cache.
    pub(crate) fn fill_page_cache(&self) -> io::Result<()> {
        let (file, mut bytes) = (self.open()?, vec![0; 1 << 20]);
        (0..self.size / bytes.len() as u64)
            .try_for_each(|index| file.read_exact_at(&mut bytes, index << 20))
    }

    /// Drops the file from the page cache, pages that were read ahead included.
    pub(crate) fn empty_page_cache(&self) -> io::Result<()> {
        let file = self.open()?;
        file.sync_all()?;
        // SAFETY: no memory is involved.
        match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Returns the path of another file, without a name and without blocks, as large as the test
    /// file. It fills the page cache of nowait before the run, as other files do after some time of
    /// use.
    pub(crate) fn another(&self) -> io::Result<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        let file = options.open(folder)?;
        file.set_len(self.size)?;
        // Open until the program ends.
        Ok(PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd())))
    }

    /// Calls `each` with the offset of every block, in a mixed order.
    pub(crate) fn every_block<E>(
        &self,
        mut each: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        const STEP: u64 = 2_654_435_761; // a prime, larger than any number of blocks
        let blocks = self.size / BLOCK as u64;
        (0..blocks).try_for_each(|index| each(index * STEP % blocks * BLOCK as u64))
    }

    /// Runs a way on `threads` threads, each with its part of the blocks.
    pub(crate) fn on_threads(
        &self,
        threads: usize,
        way: impl Fn(&Load, Rc<Share>) -> io::Result<()> + Copy + Send + Sync,
    ) -> io::Result<Report> {
        let (cpu, start) = (cpu_seconds(), Instant::now());
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
        let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
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
            "cpu_us_per_io": cpu_seconds * 1e6 / reads as f64,
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

/// Number of reads of a task before it yields to the others, and between two checks of the time.
const TURN: u64 = 16;

/// The part of one thread.
pub(crate) struct Share {
    pub(crate) tasks: usize,
    timed: bool,
    end: Instant,
    /// The blocks of this thread are `first + n * step`.
    first: u64,
    step: u64,
    blocks: u64,
    once: bool,
    seed: u64,
    random: Cell<u64>,
    begun: Cell<u64>,
    done: Cell<u64>,
    over: Cell<bool>,
    latency_ns: RefCell<Histogram<u64>>,
}

impl Share {
    fn new(load: &Load, index: usize, threads: usize) -> Share {
        let step = threads as u64;
        // A power of two, for the order without repetition.
        let blocks = prev_power_of_two(load.size / BLOCK as u64 / step);
        Share {
            tasks: load.tasks,
            timed: load.is_timed(),
            end: Instant::now() + Duration::from_millis(load.runtime_ms),
            first: index as u64,
            step,
            blocks,
            once: load.is_once(),
            seed: load.seed,
            random: Cell::new(load.seed.wrapping_mul(2) + 1),
            begun: Cell::new(0),
            done: Cell::new(0),
            over: Cell::new(false),
            latency_ns: RefCell::new(histogram()),
        }
    }

    /// Returns the offset of the next read; `None`: the run is over.
    fn next(&self) -> Option<u64> {
        let begun = self.begun.get();
        if begun.is_multiple_of(TURN) && Instant::now() >= self.end
            || self.once && begun == self.blocks
        {
            self.over.set(true);
        }
        if self.over.get() {
            return None;
        }
        self.begun.set(begun + 1);
        // Odd factors and any summand: each block once in `blocks` steps.
        let random = self.random.get();
        let next =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random.set(next);
        let index = if self.once {
            (begun + self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.blocks
        } else {
            (next >> 33) % self.blocks
        };
        Some((self.first + index * self.step) * BLOCK as u64)
    }

    fn end(&self) -> (u64, Histogram<u64>) {
        (self.done.get(), self.latency_ns.borrow().clone())
    }
}

/// One task: reads until the run is over, and checks the bytes.
pub(crate) async fn task<F>(share: Rc<Share>, read: impl Fn(Block, u64) -> F) -> io::Result<()>
where
    F: Future<Output = (io::Result<usize>, Block)>,
{
    let mut block = Block::new();
    let mut turn = 0;
    while let Some(offset) = share.next() {
        let start = share.timed.then(Instant::now);
        let (count, filled) = read(block, offset).await;
        if count? != BLOCK || !is_of(offset, filled.bytes()) {
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

/// Returns once all other tasks have had a turn, by the means that every executor has.
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

/// Returns `true` if a block begins as the benchmark lays its files out (`pattern.rs`).
fn is_of(offset: u64, bytes: &[u8]) -> bool {
    let place = (offset / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8] == (place ^ (place >> 29)).to_le_bytes()
}

fn histogram() -> Histogram<u64> {
    const LONGEST_NS: u64 = 60_000_000_000;
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("three digits")
}

fn prev_power_of_two(number: u64) -> u64 {
    1 << number.max(1).ilog2()
}

/// Processor time of the process.
fn cpu_seconds() -> f64 {
    // SAFETY: `used` is a live local that the call fills; zeroes are valid for it.
    let used = unsafe {
        let mut used: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut used);
        used
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}
