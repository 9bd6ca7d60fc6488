//! Workloads that every engine carries out through its own interface, on a file, a block device or
//! in memory.
//!
//! ```text
//!  aio_stress, rawio, randrw, cleaner, prefetch     what is measured: cases
//!        │
//!  args ─┴► suite ─► device      the file, laid out with bytes that tell their place
//!             │      interleaving, caches dropped, one process a run
//!             │
//!             └─ launch ─► run ─► engine      the peer of a name (crate::peers)
//!                           ├─ transfer       blocks, by threads with a depth each
//!                           ├─ database       agents, a pool of pages, page cleaners
//!                           └─ scan           scans, and who prefetches for them
//! ```
//!
//! `paper` runs them all, with the figures of the sources beside.

mod aio_stress;
mod args;
mod case;
mod cleaner;
mod database;
mod device;
mod drives;
mod engine;
mod job;
mod paper;
mod prefetch;
mod randrw;
mod rawio;
mod report;
mod results;
mod run;
mod scan;
mod suite;
mod transfer;

pub use aio_stress::{AioStressArgs, run_aio_stress};
pub use cleaner::{CleanerArgs, run_cleaner};
pub(crate) use paper::{PaperPlan, run as run_paper_on};
pub use prefetch::{PrefetchArgs, run_prefetch};
pub use randrw::{RandrwArgs, run_randrw};
pub use rawio::{RawioArgs, run_rawio};
pub(crate) use suite::Plan;
