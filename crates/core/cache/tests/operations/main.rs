//! Operations of a cache over a device in memory. The tests check the bios that the operations
//! make.
//!
//! A bio completes only when a test or a function of `Rig` completes it, so a test knows what is in
//! flight.

mod change;
mod durable_writes;
mod evicting;
mod fast_paths;
mod lending;
mod reading_ahead;
mod rig;
