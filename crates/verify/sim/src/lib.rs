//! A simulated device: the layers above it run in one thread, and a seed decides all random
//! choices.
//!
//! ```text
//!          queue / commit / reap                     host calls: create, set_len, punch, …
//!                 │                                              │
//!  device    handle, queues, waiting in virtual time             │
//!  service   requests that wait, are served, or are stuck        │
//!    delay      the time of a request, and the choice of the next│
//!    hardware   the same, of devices that exist                  │
//!    perform    the effect of a request on its file              │
//!    faults     the fault model; its header is the contract      │
//!    trace      the events, and a hash of them                   │
//!  store     files: the content that reads see, the durable one, pending changes
//!    sectors    a sparse file                power    the content after a power cut
//!
//!  oracle    checks the content of files against the promises to the caller
//!  failure   the report of a failed simulation
//!    shrink    a shorter list of operations that still fails
//! ```
//!
//! Time is the [`VirtualClock`] of the block layer: a wait for the device advances it, and the
//! device never sleeps. Two runs with the same configuration and the same calls have equal traces.
//!
//! This example cuts the power at each request of a scenario in turn:
//!
//! ```
//! use nowait_sim::{Config, Cut, Faults, Prng, SimDevice};
//!
//! /// Runs a stack on `Box::new(device.clone())`; returns the byte promised to the user.
//! fn scenario(device: &SimDevice) -> Option<u8> {
//!     # use {nowait_block::{Bio, BioOp, BlockBackend, Segments}, nowait_sys::time::Deadline};
//!     # let mut done = Vec::new();
//!     # // SAFETY: no memory is involved.
//!     # device.queue(unsafe { Bio::new(BioOp::Fsync, 3, Segments::NONE, 0, 0) }).unwrap();
//!     # device.commit();
//!     # device.reap(&mut done, 1, Deadline::NEVER).unwrap();
//!     // …
//!     # None
//! }
//!
//! let config = Config { faults: Faults::volatile_cache(), ..Config::new(17) };
//! for n in 0.. {
//!     let device = SimDevice::new(&config);
//!     device.create(3, 4096);
//!     device.cut_at(Cut::Queued(n));
//!     let promised = scenario(&device);
//!     let after = device.reboot(&Config::new(n), &mut Prng::new(n));
//!     let left = after.contents(3).expect("the descriptors are the same");
//!     assert!(promised.is_none_or(|byte| left[0] == byte), "cut at request {n}");
//!     if device.requests() <= n {
//!         break; // The scenario had at most `n` requests: each had its cut.
//!     }
//! }
//! ```

pub mod delay;
pub mod device;
mod failure;
pub mod faults;
mod hardware;
mod host;
mod memory;
pub mod oracle;
mod perform;
mod power;
pub mod prng;
mod sectors;
mod service;
mod shrink;
mod store;
pub mod trace;

pub use delay::Model;
pub use device::{Config, Cut, SimDevice};
pub use failure::Failure;
pub use faults::{Faults, Lies};
pub use hardware::Hardware;
pub use nowait_block::VirtualClock;
pub use oracle::Oracle;
pub use prng::Prng;
pub use shrink::{Shrunk, shrink};
pub use store::File;
