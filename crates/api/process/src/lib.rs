//! The part that the C faces of a process (libaio's, POSIX AIO's) share: one engine.
//!
//! * [`process`]: the one engine of the process, its contexts, fork and exit
//! * [`last_thread`]: the end of a process whose last thread ends
//! * [`leaving`]: exit, `_exit` and exec: what was accepted is done first
//! * [`looks`]: what one submission has found behind its descriptors
//! * [`memory`]: pointers of the application, which may be anything
//! * `environment`: the library's own variables
//! * [`guard`]: panics and `errno` end here
//!
//! `process`, `last_thread`, `leaving` and `stats` import each other: the first registers what the
//! end of the process calls, and that needs the process.

mod environment;
pub mod guard;
pub mod last_thread;
pub mod leaving;
pub mod looks;
pub mod memory;
pub mod process;
mod stats;

pub use guard::guarded;
pub use process::Process;
