//! Operations of a cache over a device in memory, with the bios that they make in view.
//!
//! Nothing completes unless a test says so: what is in flight when an operation waits is exact.

mod change;
mod durable_writes;
mod evicting;
mod fast_paths;
mod lending;
mod reading_ahead;
mod rig;
