//! The whole page cache on a simulated device, in one thread: a seed decides all random choices.
//!
//! ```text
//! scenario   the operations, drawn by a seed: some kinds never, others very often
//!   op       one operation, as data
//! run        runs a scenario, and compares: with a model, and after a power cut with an oracle
//!   executor   runs operations and the device in drawn order
//!     task       one operation in flight: its place in the order, its stages
//!     kicker     kicks, and the operations that they make runnable
//!   medium     a backend and its file: the simulated device, or an array
//!   model      the content that the file must have
//!   buffer     the user's memory
//!   canary     mistakes made on purpose
//! neighbours files on several devices, some of which are full or do not answer
//! shrink     a shorter list of operations that still fails
//! ```

mod buffer;
pub mod canary;
pub mod executor;
mod kicker;
pub mod medium;
pub mod model;
pub mod neighbours;
pub mod op;
pub mod run;
pub mod scenario;
pub mod shrink;
mod task;

pub use canary::Canary;
pub use executor::{Counts, Event, Executor, Hang, What};
pub use medium::Medium;
pub use model::Model;
pub use nowait_sim::Failure;
pub use op::Op;
pub use run::Report;
pub use scenario::{Profile, Scenario, Setup};
