//! Workloads that every engine carries out through its own interface, on a file, a block device or
//! in memory, each run in a process of its own.
//!
//! ```text
//!  aio_stress, rawio, randrw, cleaner, prefetch     cases; cached_cases: those of our page cache
//!        │
//!  args ─┴► suite ─► device      the file, laid out with bytes that tell their place
//!             │
//!             └─ run ─► peers::registry            the program of one run, and its engine
//!                 ├─ transfer       blocks, by threads with a depth each
//!                 ├─ cached         blocks of a cached file
//!                 ├─ limits         what cannot be avoided
//!                 ├─ growth         ever more requests, files, contexts, threads
//!                 ├─ database       agents, a pool of pages, page cleaners
//!                 └─ scan           scans, and prefetchers that read for them
//! ```
//!
//! `paper` runs them all, with the figures of the sources beside.

mod aio_stress;
mod args;
mod cached;
mod cached_cases;
mod cleaner;
mod database;
mod device;
mod drives;
mod growth;
mod job;
mod limits;
mod paper;
mod prefetch;
mod randrw;
mod rawio;
mod run;
mod scan;
mod suite;
mod transfer;

pub(crate) use aio_stress::{AioStressArgs, run_aio_stress};
pub(crate) use cached_cases::{CachedArgs, run_cached};
pub(crate) use cleaner::{CleanerArgs, run_cleaner};
pub(crate) use growth::{GrowthArgs, run_growth};
pub(crate) use limits::{LimitsArgs, run_limits};
pub(crate) use paper::{PaperPlan, run as run_paper_on};
pub(crate) use prefetch::{PrefetchArgs, run_prefetch};
pub(crate) use randrw::{RandrwArgs, run_randrw};
pub(crate) use rawio::{RawioArgs, run_rawio};
