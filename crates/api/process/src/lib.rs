//! The parts that two C interfaces of a process, libaio and POSIX AIO, share, such as one engine.

mod environment;
pub mod guard;
pub mod last_thread;
pub mod leaving;
pub mod looks;
pub mod memory;
mod named_counters;
pub mod process;
mod stats;

pub use guard::guarded;
pub use process::Process;
