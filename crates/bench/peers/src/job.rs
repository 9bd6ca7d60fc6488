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
    /// The engine opens the files with `O_DSYNC`.
    pub sync: bool,
    /// The file, or several files that have its bytes in parts.
    pub paths: Vec<PathBuf>,
    /// No run writes to the file that is read, so reads find the original pattern.
    pub pristine: bool,
    /// Another file, which fills nowait's page cache before a run; `None`: a sparse file does.
    pub other: Option<PathBuf>,
    /// Number of bytes to work on.
    pub set_bytes: u64,
    /// Size of nowait's page cache.
    pub pool_bytes: u64,
    /// The time after which the run begins no more requests, in milliseconds. Runs with
    /// [`Fsync::Inside`] ignore this time.
    pub runtime_ms: u64,
    /// Seed of the order of requests.
    pub seed: u64,
    /// The generation, not 0, with which writes of this run stamp their blocks: a block of an older
    /// generation shows that a write was lost.
    pub generation: u32,
    /// The file for the figures, as JSON.
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
    /// The kernel's native AIO; a seccomp filter forbids the process `io_uring`.
    Kaio,
    /// Threads that block.
    Threads,
}

/// The work on the file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Threads read and write blocks.
    Transfer(Transfer),
    /// Work without a file, as a limit of the machine.
    Act(Act),
}

/// Threads read and write blocks, and keep a number of blocks in flight.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transfer {
    /// Percentage of requests that write.
    pub write_percent: u8,
    /// The order of the blocks.
    pub access: Access,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Adjoining blocks that one request moves, each from memory of its own.
    pub segments: usize,
    /// Which blocks a thread visits.
    pub visits: Visits,
    /// The transfer ends after one visit of every block, even before its time.
    pub one_lap: bool,
    /// The fsync at the end.
    pub fsync: Fsync,
    /// Threads that submit.
    pub threads: usize,
    /// Number of contexts of a thread. The contexts share its depth.
    pub contexts: usize,
    /// Most blocks that a thread has in flight.
    pub depth: usize,
    /// Number of blocks that must have ended before a thread makes new requests.
    pub refill: usize,
    /// Most requests in one call.
    pub batch: usize,
    /// The content of the page cache that the engine uses, before the clock starts.
    pub warm: Warm,
    /// Buffers are in huge pages, so each is one piece for a device; otherwise in pages of 4 KiB.
    pub huge: bool,
    /// The measurements of each request.
    pub looks: Looks,
}

impl Transfer {
    /// One thread reads each block once, in random order, one request in a call.
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
    /// The file has this number of parts; a thread visits the blocks of one part, and the threads
    /// of a part share the order of its blocks.
    Part(usize),
    /// The file has this number of parts, which a thread visits in turn; all threads share the
    /// order of each part.
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
    /// An fsync after the measured time, reported separately.
    Apart,
    /// An fsync inside the measured time, after one whole lap.
    Inside,
}

/// The measurements of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Looks {
    /// The time of calls that submit. Other measurements would distort requests of a few
    /// nanoseconds.
    Calls,
    /// Also the time until a request is over.
    Latencies,
    /// Also the number of times that a submitting call sleeps.
    Sleeps,
}

/// The content of the page cache that the engine uses, before the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warm {
    /// The run reads no page of the file before. nowait's page cache is full of another file, as
    /// after some time of use.
    Nothing,
    /// The whole set, read in order.
    All,
    /// The whole set, read page by page with `POSIX_FADV_RANDOM`, so that the kernel takes small
    /// folios. For nowait's page cache, the same as `All`.
    Pages,
    /// Every other 64 KiB, as if a cache half as large had seen random reads.
    Half,
}

/// Work that no engine can avoid, as a loop of a few lines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// A system call that does nothing.
    Call,
    /// A thread wakes another one, and sleeps until the other one wakes it.
    RoundTrip,
}

/// The figures of a run by their names in reports.
pub type Outcome = BTreeMap<String, f64>;

impl Job {
    /// Returns the time after which the run begins no more requests, see `runtime_ms`.
    pub fn runtime(&self) -> Duration {
        Duration::from_millis(self.runtime_ms)
    }
}

impl Work {
    /// Returns `true` if the work writes blocks.
    pub fn writes(&self) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.write_percent > 0,
            Self::Act(_) => false,
        }
    }
}
