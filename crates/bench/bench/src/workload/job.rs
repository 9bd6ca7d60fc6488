//! One run in its own process: its parameters and its results.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nowait::{BackendChoice, SubmitMode};
use serde::{Deserialize, Serialize};

use super::limits::Act;
use crate::metric::{Metric, Sample};
use crate::offsets::Access;
use crate::peers::Place;
use crate::peers::registry::EngineDef;

/// The work of one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The name of an engine.
    pub(crate) engine: String,
    /// The library it loads, for those that load one.
    pub(crate) library: Option<PathBuf>,
    pub(crate) backend: Backend,
    pub(crate) work: Work,
    /// `O_DSYNC`.
    pub(crate) sync: bool,
    pub(crate) path: PathBuf,
    /// Another file, which fills our cache before a run; without it that is a sparse one.
    pub(crate) other: Option<PathBuf>,
    /// Bytes of the file that are worked on.
    pub(crate) set_bytes: u64,
    /// Size of our page cache.
    pub(crate) pool_bytes: u64,
    pub(crate) runtime_ms: u64,
    pub(crate) seed: u64,
    /// The generation that writes of this run stamp, so that a lost one is noticed; not 0.
    pub(crate) generation: u32,
    /// Where the outcome goes, as JSON.
    pub(crate) outcome: PathBuf,
}

/// The backend that nowait uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Backend {
    Auto,
    Uring,
    /// The kernel's native AIO; the process is not allowed to use `io_uring`.
    Kaio,
    /// Threads that block.
    Threads,
}

impl Backend {
    /// Returns what a note says behind the name of an engine.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Auto => "",
            Self::Uring => " with io_uring",
            Self::Kaio => " without io_uring",
            Self::Threads => " with threads alone",
        }
    }
}

/// The work of a subject, on any device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) engine: &'static EngineDef,
    pub(crate) backend: Backend,
    pub(crate) work: Work,
    /// `O_DSYNC`.
    pub(crate) sync: bool,
    /// Runs begin with empty caches.
    pub(crate) cold: bool,
    /// A run takes so many times the runtime of the measurement.
    pub(crate) longer: u32,
    /// The bytes that are read or written, and nowait's page cache.
    pub(crate) set: Share,
    pub(crate) pool: Share,
}

/// A size as a share of that of the measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share(pub(crate) u64, pub(crate) u64);

impl Share {
    /// Returns the size; a part is a multiple of 2 MiB, and at least that.
    pub(crate) fn of(self, size_bytes: u64) -> u64 {
        if self.1 == 1 {
            return size_bytes * self.0;
        }
        (size_bytes * self.0 / self.1).max(1).next_multiple_of(2 << 20)
    }
}

impl Recipe {
    /// Does `work` with all of the file, cold; our cache has room for all of it, as the kernel's.
    pub(crate) fn new(engine: &'static EngineDef, work: Work) -> Self {
        Self {
            engine,
            backend: Backend::Auto,
            work,
            sync: false,
            cold: true,
            longer: 1,
            set: Share(1, 1),
            pool: Share(9, 8),
        }
    }

    /// Returns the longest time of a run.
    pub(crate) fn runtime(&self, of_all: Duration) -> Duration {
        of_all * self.longer
    }
}

/// The work on the file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    Transfer(Transfer),
    Cleaner(Cleaner),
    Prefetch(Prefetch),
    Cached(Cached),
    Growth(Growth),
    Act(Act),
}

/// Blocks are read and written, by threads that keep a number of requests in flight.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) write_percent: u8,
    pub(crate) access: Access,
    pub(crate) block_bytes: usize,
    /// Ends after one visit of every block, even before its time.
    pub(crate) one_lap: bool,
    /// Ends with an fsync, whose time is reported apart.
    pub(crate) fsync: bool,
    pub(crate) threads: usize,
    /// Requests that a thread has in flight at most.
    pub(crate) depth: usize,
    /// Requests that must be over before new ones are made.
    pub(crate) refill: usize,
    /// Requests in one call at most.
    pub(crate) batch: usize,
    /// Parts of the file, each with its own order of blocks.
    pub(crate) drives: usize,
    /// Each thread visits all parts by turns, else one.
    pub(crate) all_drives: bool,
}

impl Transfer {
    /// One thread reads each block once, in an order without pattern, a request a call.
    pub(crate) const SINGLE: Self = Self {
        write_percent: 0,
        access: Access::Random,
        block_bytes: 4 << 10,
        one_lap: true,
        fsync: false,
        threads: 1,
        depth: 32,
        refill: 1,
        batch: 1,
        drives: 1,
        all_drives: false,
    };
}

/// Agents of a database change pages in a pool, and cleaners write them back.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Cleaner {
    pub(crate) cleaners: usize,
    /// Writes that a cleaner has in flight at most.
    pub(crate) depth: usize,
    pub(crate) agents: usize,
    pub(crate) pool_pages: usize,
}

/// Scans of a database use extents that prefetchers read for them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Prefetch {
    pub(crate) prefetchers: usize,
    /// Reads that a prefetcher has in flight at most.
    pub(crate) depth: usize,
    pub(crate) scans: usize,
    /// Extents that a scan asks for ahead.
    pub(crate) ahead: usize,
    pub(crate) extent_bytes: usize,
}

/// Blocks are read or written in a cached file, by threads that each visit all of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Cached {
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
}

/// Blocks of 4 KiB are read at random places of one file or many, past all caches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Growth {
    /// Requests in flight in all contexts together.
    pub(crate) in_flight: usize,
    /// They hold the bytes of the set by parts.
    pub(crate) files: usize,
    /// Contexts of each thread.
    pub(crate) contexts: usize,
    pub(crate) threads: usize,
}

/// The preparation before the clock starts.
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

/// The figures of a run by the names of their metrics.
pub(crate) type Outcome = BTreeMap<String, f64>;

impl Job {
    /// Returns what the engine opens.
    pub(crate) fn place(&self) -> Place {
        Place {
            path: self.path.clone(),
            write: self.work.writes(),
            direct: false,
            sync: self.sync,
            set_bytes: self.set_bytes,
            pool_bytes: self.pool_bytes,
            backend: match self.backend {
                Backend::Auto => BackendChoice::Auto,
                Backend::Uring => BackendChoice::Uring,
                Backend::Kaio => BackendChoice::Kaio,
                Backend::Threads => BackendChoice::Threads,
            },
            submit: SubmitMode::Auto,
        }
    }
}

impl Work {
    /// Returns `true` if anything is written.
    pub(crate) fn writes(&self) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.write_percent > 0,
            Self::Cleaner(_) => true,
            Self::Prefetch(_) | Self::Growth(_) | Self::Act(_) => false,
            Self::Cached(cached) => cached.write,
        }
    }
}

/// Names the figures of a sample.
pub(crate) fn outcome(sample: &Sample) -> Outcome {
    sample.iter().map(|(metric, value)| (metric.name().to_owned(), *value)).collect()
}

/// Finds the metrics again; a name that is unknown is left out.
pub(crate) fn sample(outcome: &Outcome) -> Sample {
    outcome.iter().filter_map(|(name, value)| Some((Metric::named(name)?, *value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_survives_the_way_to_the_parent() {
        let told: Sample = Metric::ALL.into_iter().zip((1..).map(f64::from)).collect();
        assert_eq!(sample(&outcome(&told)), told);
    }
}
