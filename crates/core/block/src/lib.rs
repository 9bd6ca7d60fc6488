//! Backends: each accepts requests, runs them and returns their results.

pub mod backend;
pub mod backends;
pub mod bio;
mod clock;
pub mod fair;
mod gate;
mod inbox;
mod lane;
mod line;
pub mod probe;
#[doc(hidden)]
pub mod skip;
mod slab;
pub mod tags;

pub use backend::{BlockBackend, Limits, Refused};
pub use bio::{Bio, BioOp, Completion, Segments, WorkerHints};
pub use clock::VirtualClock;
pub use fair::Fair;
pub use lane::Lane;
pub use slab::Slab;
pub use tags::{Disk, Share, Submitter, Tags};
