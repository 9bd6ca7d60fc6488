//! Jobs that engines carry out, each engine through its own interface, on a file, on a block device
//! or in memory. Each run is a process of its own, which calls the crate `nowait-peers`.
//!
//! ```text
//!  suites    how each is measured                  ─┐
//!  sources   the experiments of the sources         │  tables: cases with the jobs of their
//!  growth    ever more of everything               ─┘  subjects
//!     │
//!  suite ─► device     the files, laid out with words that contain their offset
//!     └───► program    the process of one run
//! ```
//!
//! `paper` measures the tables of the sources one after another.

mod args;
mod device;
mod growth;
mod paper;
mod parts;
mod program;
mod recipe;
mod sources;
mod suite;
mod suites;

pub(crate) use args::{WorkloadArgs, run_workload};
pub(crate) use device::smallest_direct_block;
pub(crate) use growth::GROWTH;
pub(crate) use paper::PAPER;
pub(crate) use suites::{AIO_STRESS, CACHED, LIMITS, RANDRW, RAWIO, VECTOR};
