//! Backends, which submit requests to the operating system and return their results.
//!
//! ```text
//! bio        one request: operation, file, segments, offset, token
//! backend    the trait of all backends
//! backends/  uring · aio · threads · mem          talk to the system (mem: to memory)
//! clock      virtual time, for simulations
//! conformance   the one suite that all of them pass
//! fair       whose turn it is when more waits than can be carried; line: one of its queues
//! lane       the order of the bios of one file, on workers
//! tags       how many requests the queues of an engine have at devices together
//! probe      which of them work on this machine, found by using them
//! ```

pub mod backend;
pub mod backends;
pub mod bio;
mod clock;
pub mod conformance;
pub mod fair;
mod gate;
mod inbox;
mod lane;
mod line;
pub mod probe;
mod slab;
pub mod tags;

pub use backend::{BlockBackend, Limits, Refused};
pub use bio::{Bio, BioOp, Completion, Segments, WorkerHints};
pub use clock::VirtualClock;
pub use fair::Fair;
pub use lane::Lane;
pub use slab::Slab;
pub use tags::{Disk, Share, Submitter, Tags};
