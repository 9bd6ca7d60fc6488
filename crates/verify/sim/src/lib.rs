//! A simulated device: the whole stack runs on it in one thread, and a seed decides all random
//! choices.
//!
//! ```text
//!          queue / commit / reap                     host calls: create, set_len, punch, …
//!                 │                                              │
//!  device    handle, queues, waiting in virtual time             │
//!  service   what waits, what is served, what is stuck           │
//!    delay      how long a request takes, and which is next      │
//!    hardware   the same, of devices that exist                  │
//!    perform    what a request does to its file                  │
//!    faults     the fault model; its header is the contract      │
//!    trace      what happened, and a hash of it                  │
//!  store     files: what reads see, what is durable, what lies between
//!    sectors    a sparse file                power    what is left after a power cut
//!
//!  oracle    judges from outside: may a file look like this after what was promised?
//!  failure   what a simulation says that has failed
//!    shrink    a shorter list of what was done that still fails
//! ```
//!
//! Time is the [`VirtualClock`] of the block layer: a wait for the device advances it, and nothing
//! ever sleeps. Two runs with the same seed and caller are equal, event for event.
//!
//! A sweep over power cuts, at every request of a scenario:
//!
//! ```
//! use nowait_sim::{Config, Cut, Faults, Prng, SimDevice};
//!
//! /// Runs on `Box::new(device.clone())` as its backend; returns what the user was promised.
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
//!         break; // The scenario has ended before the cut: each of its requests had one.
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
