//! Open files held in the engine's own descriptor table.
//!
//! A request holds the open file it was submitted on, as in the kernel: closing or reusing the
//! number afterwards neither fails it nor hits another file. The file is sent to the engine's
//! threads once, shared by the requests that are in flight on it, and closed when the last of
//! them ends, before its event is visible. See [`nowait_sys::fdtable`] for why not `dup`.
//!
//! * `channel`: open files on their way into the engine's table
//! * `held`: the files that requests hold, each by its number in that table
//! * `both`: a descriptor of the engine that stands in both tables
//! * `count`: descriptors that are counted, for closes that wait for the last
//! * `deferred`: what is closed later, on a thread with the other table

mod both;
mod channel;
mod count;
mod deferred;
mod held;

pub(crate) use both::BothTables;
pub(crate) use count::{Counted, OpenCount};
pub(crate) use deferred::Deferred;
pub use held::{HeldFd, Holds};

use nowait_sys::fdtable;

/// Marks the calling thread as one whose descriptor table is the engine's.
pub fn enter_engine_table() {
    fdtable::mark_private(true);
}

/// While this lives, the calling thread counts as one of the engine's: for those of an engine whose
/// table is the application's.
pub(crate) struct AsEngine(bool);

impl AsEngine {
    pub(crate) fn begin() -> AsEngine {
        AsEngine(fdtable::mark_private(true))
    }
}

impl Drop for AsEngine {
    fn drop(&mut self) {
        fdtable::mark_private(self.0);
    }
}

/// Returns `true` if the calling thread's descriptor table is the engine's.
pub fn in_engine_table() -> bool {
    fdtable::is_private()
}
