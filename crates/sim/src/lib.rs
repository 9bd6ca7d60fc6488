//! A simulated device: the whole stack runs on it in one thread, and a seed says how it goes.
//!
//! ```text
//!          queue / commit / reap                     host calls: create, set_len, punch, …
//!                 │                                              │
//!  device    handle, queues, waiting in virtual time             │
//!  service   what waits, what is served, what is stuck           │
//!    delay      how long a request takes, and which is next      │
//!    perform    what a request does to its file                  │
//!    faults     the fault model; its header is the contract      │
//!    trace      what happened, and a hash of it                  │
//!  store     files: what reads see, what is durable, what lies between
//!    sectors    a sparse file                power    what is left after a power cut
//!
//!  oracle    judges from outside: may a file look like this after what was promised?
//! ```
//!
//! Time is the [`VirtualClock`] of the block layer: it moves when the device is waited for, and
//! nothing ever sleeps. Two runs with one seed and one caller are the same, event for event.

pub mod delay;
pub mod device;
pub mod faults;
mod host;
mod memory;
pub mod oracle;
mod perform;
mod power;
pub mod prng;
mod sectors;
mod service;
mod store;
pub mod trace;

pub use delay::Model;
pub use device::{Config, Cut, SimDevice};
pub use faults::{Faults, Lies};
pub use nowait_block::stacked::delay::VirtualClock;
pub use oracle::Oracle;
pub use prng::Prng;
