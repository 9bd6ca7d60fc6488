//! One run in its own process: what it is told, and what it tells.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nowait::{BackendChoice, SubmitMode};
use serde::{Deserialize, Serialize};

use crate::metric::{Metric, Sample};
use crate::offsets::Access;
use crate::peers::Place;

/// What one process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The name of an engine.
    pub(crate) engine: String,
    /// The library it loads, for those that load one.
    pub(crate) library: Option<PathBuf>,
    pub(crate) work: Work,
    /// `O_DSYNC`.
    pub(crate) sync: bool,
    pub(crate) path: PathBuf,
    /// Bytes of the file that are worked on.
    pub(crate) set_bytes: u64,
    /// Size of our page cache.
    pub(crate) pool_bytes: u64,
    pub(crate) runtime_ms: u64,
    pub(crate) seed: u64,
    /// What writes of this run stamp, so that a lost one is noticed; not 0.
    pub(crate) generation: u32,
    /// Where the outcome goes, as JSON.
    pub(crate) outcome: PathBuf,
}

/// What is done with the file.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    Transfer(Transfer),
    Cleaner(Cleaner),
    Prefetch(Prefetch),
}

/// Blocks are read and written, by threads that keep a number of requests under way.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) write_percent: u8,
    pub(crate) access: Access,
    pub(crate) block_bytes: usize,
    /// Ends after one visit of every block, even before its time.
    pub(crate) one_lap: bool,
    /// Ends with an fsync, whose time is told apart.
    pub(crate) fsync: bool,
    pub(crate) threads: usize,
    /// Requests that a thread has under way at most.
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

/// Agents of a database change pages in a pool, and cleaners write them back.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Cleaner {
    pub(crate) cleaners: usize,
    /// Writes that a cleaner has under way at most.
    pub(crate) depth: usize,
    pub(crate) agents: usize,
    pub(crate) pool_pages: usize,
}

/// Scans of a database use extents that prefetchers read for them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Prefetch {
    pub(crate) prefetchers: usize,
    /// Reads that a prefetcher has under way at most.
    pub(crate) depth: usize,
    pub(crate) scans: usize,
    /// Extents that a scan asks for ahead.
    pub(crate) ahead: usize,
    pub(crate) extent_bytes: usize,
}

/// What a run has measured: figures by the names of their metrics.
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
            backend: BackendChoice::Auto,
            submit: SubmitMode::Auto,
        }
    }
}

impl Work {
    /// Tells whether anything is written.
    fn writes(&self) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.write_percent > 0,
            Self::Cleaner(_) => true,
            Self::Prefetch(_) => false,
        }
    }
}

/// Names the figures of a sample.
pub(crate) fn outcome(sample: &Sample) -> Outcome {
    sample.iter().map(|(metric, value)| (metric.name().to_owned(), *value)).collect()
}

/// Finds the metrics again; a name that is unknown is left out.
pub(crate) fn sample(outcome: &Outcome) -> Sample {
    let known = |name: &str| Metric::ALL.into_iter().find(|metric| metric.name() == name);
    outcome.iter().filter_map(|(name, value)| Some((known(name)?, *value))).collect()
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
