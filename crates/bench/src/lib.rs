//! Interleaved measurements of an unmodified fio, with and without nowait.
//!
//! ```text
//!  SubmitArgs / DemoArgs ──► suite ──► cases from `job`, subjects from `subject`
//!                              │
//!                              ├─ prepare     folders, engines that work, cases that can run
//!                              ├─ layout      the file a case works on, really written
//!                              ├─ cache       sync and drop caches before every run
//!                              ├─ interleave  A B C, C B A, A B C … until the rounds are done
//!                              │     └─ fio ─ launch   one run: JSON, rusage, seccomp
//!                              └─ results ─► stats ─► verdict ─► table, report (JSON, HTML)
//! ```
//!
//! Our own page cache is measured by programs of ours, in the same way: `cached`. What no fio job
//! can ask is asked of an engine in this process (`rig`): `vector`,
//! `fairness`, `mixed`.
//! Servers of images are measured by fio as their client: `serve`.
//! The sources' experiments are simulated on models of their devices, or repeated on a device that
//! exists, with every engine through its own interface: `paper`, `workload`. Saved figures are
//! compared by `compare`.
//!
//! The command-line tool embeds [`SubmitArgs`], [`CachedArgs`] and [`DemoArgs`] and calls
//! [`run_submit`], [`run_posix`], [`run_cached`] and [`run_demo`]; the binary `nowait-bench` of
//! this package does the same with nothing around it.

#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests use figures that are exact"))]

mod args;
mod cache;
mod cached;
mod compare;
mod demo;
mod error;
mod fairness;
mod fio;
mod host;
mod interleave;
mod interrupt;
mod job;
mod launch;
mod layout;
mod memory;
mod metric;
mod mixed;
mod offsets;
mod pace;
mod paper;
mod pattern;
mod peers;
mod prepare;
mod progress;
mod report;
mod results;
mod rig;
mod runs;
mod seccomp;
mod serve;
mod stats;
mod subject;
mod submit;
mod suite;
mod table;
mod units;
mod usage;
mod vector;
mod verdict;
mod workload;

pub use args::{DemoArgs, DiskArgs, MeasureArgs, POSIX_EXAMPLES, Places, SubmitArgs};
pub use cached::{CachedArgs, CachedResults, run_cached};
pub use compare::{CompareArgs, run_compare};
pub use demo::run_demo;
pub use error::{BenchError, Result};
pub use fairness::{FairnessArgs, run_fairness};
pub use mixed::{MixedArgs, run_mixed};
pub use paper::{PaperArgs, run_paper};
pub use report::ReportArgs;
pub use results::Results;
pub use serve::{ServeBenchArgs, run_serve};
pub use submit::{run_posix, run_submit};
pub use vector::{VectorArgs, run_vector};
pub use workload::{
    AioStressArgs, CleanerArgs, PrefetchArgs, RandrwArgs, RawioArgs, run_aio_stress, run_cleaner,
    run_prefetch, run_randrw, run_rawio,
};
