//! A job: the work of one process, and its engine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use nowait_harness::order::Access;

/// The work of one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The name of an engine.
    pub engine: String,
    /// The backend that nowait uses.
    pub backend: Backend,
    /// The work on the file.
    pub work: Work,
    /// `O_DSYNC`.
    pub sync: bool,
    /// The file, or several that hold the bytes of one by parts.
    pub paths: Vec<PathBuf>,
    /// No write has ever stamped the files: reads find what was laid out.
    pub pristine: bool,
    /// Another file, which fills our cache before a run; without it that is a sparse one.
    pub other: Option<PathBuf>,
    /// Bytes that are worked on.
    pub set_bytes: u64,
    /// Size of our page cache.
    pub pool_bytes: u64,
    /// The longest time, in milliseconds.
    pub runtime_ms: u64,
    /// Decides where requests go.
    pub seed: u64,
    /// The generation that writes of this run stamp, so that a lost one is noticed; not 0.
    pub generation: u32,
    /// Where the figures go, as JSON.
    pub outcome: PathBuf,
}

/// The backend that nowait uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// The one that the engine chooses.
    Auto,
    /// `io_uring`.
    Uring,
    /// The kernel's native AIO; the process is not allowed to use `io_uring`.
    Kaio,
    /// Threads that block.
    Threads,
}

/// The work on the file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Blocks are read and written.
    Transfer(Transfer),
    /// No file: the machine at its best.
    Act(Act),
}

/// Blocks are read and written, by threads that keep a number of them in flight.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transfer {
    /// How many of a hundred requests write.
    pub write_percent: u8,
    /// The order of the blocks.
    pub access: Access,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Adjoining blocks that one request moves, each from memory of its own.
    pub segments: usize,
    /// Which blocks a thread visits.
    pub visits: Visits,
    /// Ends after one visit of every block, even before its time.
    pub one_lap: bool,
    /// The fsync at the end.
    pub fsync: Fsync,
    /// Threads that submit.
    pub threads: usize,
    /// Contexts of a thread, which divide its depth.
    pub contexts: usize,
    /// Blocks that a thread has in flight at most.
    pub depth: usize,
    /// Blocks that must be over before new requests are made.
    pub refill: usize,
    /// Requests in one call at most.
    pub batch: usize,
    /// The content of a cache before the clock starts.
    pub warm: Warm,
    /// Buffers lie in huge pages, each one piece to a device, else in pages of 4 KiB.
    pub huge: bool,
    /// The measurements of each request.
    pub looks: Looks,
}

impl Transfer {
    /// One thread reads each block once, in an order without pattern, a request a call.
    pub const SINGLE: Self = Self {
        write_percent: 0,
        access: Access::Random,
        block_bytes: 4 << 10,
        segments: 1,
        visits: Visits::SHARED,
        one_lap: true,
        fsync: Fsync::None,
        threads: 1,
        contexts: 1,
        depth: 32,
        refill: 1,
        batch: 1,
        warm: Warm::Nothing,
        huge: true,
        looks: Looks::Latencies,
    };
}

impl Default for Transfer {
    fn default() -> Self {
        Self::SINGLE
    }
}

/// Which blocks a thread visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visits {
    /// All blocks, in the thread's own order.
    Own,
    /// The blocks of one of so many parts of the file; threads of a part share its order.
    Part(usize),
    /// The blocks of so many parts by turns; all threads share the orders.
    Parts(usize),
}

impl Visits {
    /// All threads share one order of all blocks.
    pub const SHARED: Self = Self::Part(1);
}

/// The fsync at the end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fsync {
    /// The transfer ends without an fsync.
    None,
    /// Behind the measured time, and reported apart.
    Apart,
    /// Inside the measured time, after one whole lap.
    Inside,
}

/// The measurements of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Looks {
    /// The time of calls that submit: more would show where a request takes a few nanoseconds.
    Calls,
    /// The time until a request is over, too.
    Latencies,
    /// And how often such a call sleeps.
    Sleeps,
}

/// The content of a cache before the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warm {
    /// Nothing of the file. Our pool is full of another file, as after some time of use.
    Nothing,
    /// The whole set, read in order.
    All,
    /// The whole set, read page by page with `POSIX_FADV_RANDOM`, so that the kernel takes small
    /// folios.
    Pages,
    /// Every other 64 KiB, as if a cache half as large had seen random reads.
    Half,
}

/// Unavoidable work, as a program of a few lines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// A system call that does nothing.
    Call,
    /// A thread wakes another one, and sleeps until that wakes it.
    RoundTrip,
}

/// The figures of a run by their names in reports.
pub type Outcome = BTreeMap<String, f64>;

impl Job {
    /// Returns the longest time.
    pub fn runtime(&self) -> Duration {
        Duration::from_millis(self.runtime_ms)
    }
}

impl Work {
    /// Returns `true` if anything is written.
    pub fn writes(&self) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.write_percent > 0,
            Self::Act(_) => false,
        }
    }
}
