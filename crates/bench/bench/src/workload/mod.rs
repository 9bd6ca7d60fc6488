//! Jobs that every engine carries out through its own interface, on a file, a block device or in
//! memory, each in a process of its own, which runs the crate `nowait-peers`.
//!
//! ```text
//!  sources   the experiments of the sources        ─┐
//!  cached    our page cache against every peer      │  tables: cases with the jobs of their
//!  limits    unavoidable work                       │  subjects
//!  growth    ever more of everything               ─┘
//!     │
//!  suite ─► device     the files, laid out with words that contain their offset
//!     └───► program    the process of one run
//! ```
//!
//! `paper` measures the tables of the sources one after another.

mod args;
mod cached;
mod device;
mod growth;
mod limits;
mod paper;
mod parts;
mod program;
mod recipe;
mod sources;
mod suite;

pub(crate) use args::{WorkloadArgs, run_workload};
pub(crate) use cached::CACHED;
pub(crate) use growth::GROWTH;
pub(crate) use limits::LIMITS;
pub(crate) use paper::PAPER;
pub(crate) use sources::{AIO_STRESS, RANDRW, RAWIO, VECTOR};

/// The help of each workload.
pub(crate) mod examples {
    pub(crate) use super::cached::EXAMPLES as CACHED;
    pub(crate) use super::growth::EXAMPLES as GROWTH;
    pub(crate) use super::limits::EXAMPLES as LIMITS;
    pub(crate) use super::sources::{
        AIO_STRESS_EXAMPLES as AIO_STRESS, RANDRW_EXAMPLES as RANDRW, RAWIO_EXAMPLES as RAWIO,
        VECTOR_EXAMPLES as VECTOR,
    };
}
