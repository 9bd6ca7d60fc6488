//! The parts that two C interfaces of a process, libaio and POSIX AIO, share, such as one engine.
//!
//! * [`process`]: the one engine of the process, its contexts, fork and exit
//! * [`last_thread`]: the end of a process whose last thread ends
//! * [`leaving`]: exit, `_exit` and exec, which first wait for accepted requests
//! * `stats`: counters of the running process in a file
//! * [`looks`]: state of the descriptors during one submission
//! * [`memory`]: pointers of the application, which may have any value
//! * `named_counters`: the contexts whose requests name an eventfd
//! * `environment`: the options in the environment
//! * [`guard`]: stops panics and preserves `errno`

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
