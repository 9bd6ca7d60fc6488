//! One run in its own process: what it is told, and what it tells.

use std::path::PathBuf;

use nowait::{BackendChoice, SubmitMode};
use serde::{Deserialize, Serialize};

use crate::offsets::Access;
use crate::peers::Place;

/// A way to read and write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Engine {
    /// Our page cache through the native API: a queue, its buffers moved in and out.
    Queue,
    /// Our page cache one level below: a submission, no table of buffers.
    Submission,
    /// Our page cache without a copy: pages are lent.
    Guard,
    /// pread(2) and pwrite(2), through the kernel's page cache, into one buffer.
    Psync,
    /// The same, and posix_fadvise(2) as far ahead of a sequential reader as we read.
    PsyncAhead,
    /// preadv2(2) with `RWF_NOWAIT`.
    Preadv2,
    /// `io_uring`; submission and wait are one system call.
    Uring,
    /// The same with `DEFER_TASKRUN` and `SINGLE_ISSUER`.
    UringDefer,
    /// The kernel's native AIO.
    Libaio,
    /// A shared mapping, populated, and memcpy.
    Mmap,
    /// Private huge pages, and memcpy: what any cache must do at least.
    Memcpy,
}

/// What is done before the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Warm {
    /// Nothing of the file. Our pool is full of another file, as after some time of use.
    Nothing,
    /// All of the set is read in order.
    All,
    /// All of it, page by page with `POSIX_FADV_RANDOM`, so that the kernel takes small folios.
    Pages,
    /// Every other 64 KiB, as if a cache half as large had seen random reads.
    Half,
}

/// What one process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) engine: Engine,
    /// Our engine must use native AIO; the process is not allowed to use `io_uring`.
    pub(crate) kaio: bool,
    /// `O_DIRECT`, for the peers.
    pub(crate) direct: bool,
    /// `O_DSYNC`.
    pub(crate) sync: bool,
    pub(crate) write: bool,
    pub(crate) access: Access,
    pub(crate) warm: Warm,
    /// Ends with an fsync, inside the measured time, after one lap.
    pub(crate) fsync: bool,
    /// Ends after one visit of every block, even before its time.
    pub(crate) one_lap: bool,
    /// Submits only whole batches of `depth`, and waits for all of each.
    pub(crate) batches: bool,
    pub(crate) threads: usize,
    pub(crate) depth: usize,
    pub(crate) block_bytes: usize,
    /// Bytes of the file that are worked on.
    pub(crate) set_bytes: u64,
    /// Size of our page cache.
    pub(crate) pool_bytes: u64,
    pub(crate) runtime_ms: u64,
    pub(crate) seed: u64,
    pub(crate) path: PathBuf,
    /// Another file, which fills our cache before a run with [`Warm::Nothing`].
    pub(crate) other: PathBuf,
    /// Where the outcome goes, as JSON.
    pub(crate) outcome: PathBuf,
}

impl Spec {
    /// Returns what a peer opens.
    pub(crate) fn place(&self) -> Place {
        Place {
            path: self.path.clone(),
            write: self.write,
            direct: self.direct,
            sync: self.sync,
            set_bytes: self.set_bytes,
            pool_bytes: self.pool_bytes,
            backend: if self.kaio { BackendChoice::Kaio } else { BackendChoice::Uring },
            submit: SubmitMode::Auto,
        }
    }
}

/// What a run has measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) wall_us: f64,
    /// User and system time of all threads, the kernel's workers for `io_uring` included.
    pub(crate) cpu_us: f64,
    pub(crate) switches: f64,
    /// Time of the calls that submit, in microseconds: p50, p99, p99.9, longest.
    pub(crate) submit_us: [f64; 4],
    /// How often the thread slept inside the calls that submit; not counted for cached sets.
    pub(crate) submit_sleeps: f64,
}
