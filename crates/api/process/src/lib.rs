//! The part that the C faces of a process share: one engine.
//!
//! * [`process`]: the one engine of the process, its contexts, fork and exit
//! * [`leaving`]: exit, `_exit` and exec: what was accepted is done first
//! * [`cached`]: descriptors that go through the cache of the engine, and plain calls on them
//! * [`plain_changes`]: plain calls in flight on files that are not cached
//! * [`memory`]: pointers of the application, which may be anything
//! * [`guard`]: panics and `errno` end here

pub mod cached;
pub mod guard;
pub mod leaving;
pub mod memory;
pub mod plain_changes;
pub mod process;

pub use guard::guarded;
pub use process::Process;
