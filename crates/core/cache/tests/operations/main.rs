//! Operations of a cache over a device in memory, with the bios that they make in view.
//!
//! No bio completes unless the test says so: the test knows exactly what is in flight when an
//! operation waits.

mod change;
mod durable_writes;
mod evicting;
mod fast_paths;
mod lending;
mod reading_ahead;
mod rig;
