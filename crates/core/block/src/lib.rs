//! Backends: each accepts requests, runs them and returns their results.
//!
//! ```text
//! bio        one request: operation, file, segments, offset, token
//! backend    the trait of all backends
//! backends/  uring · aio · threads                talk to the system
//!            mem · null · error                   for tests and measurements
//! clock      virtual time, for simulations
//! fair       fair turns between flows of waiting work; line: the queue of one flow
//! lane       the order in which workers run the bios of one file
//! tags       limits the requests that all queues of an engine together have at a disk
//! probe      finds the backends that work on this machine, by using them
//! ```

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
