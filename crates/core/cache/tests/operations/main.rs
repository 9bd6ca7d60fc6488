//! Operations of a cache over a device in memory. The tests check the bios that the operations
//! make.
//!
//! No bio completes unless the test or a function of `Rig` completes it. So the test knows exactly
//! what is in flight when an operation waits.

mod change;
mod durable_writes;
mod evicting;
mod fast_paths;
mod lending;
mod reading_ahead;
mod rig;
