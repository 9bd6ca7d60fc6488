//! Open files held in the engine's own descriptor table.
//!
//! A request that goes to the driver or the workers holds its open file, as in the kernel. If the
//! program then closes or reuses the number, the request neither fails nor touches another file.
//! The file is sent to the engine's threads once, and shared by the requests in flight on it, if
//! its inode shows which file it is. The file is closed when the last of these requests ends,
//! before its event is visible, or later if the file is kept for the next request
//! (`Holds::hold_and_keep`). [`nowait_sys::fdtable`] says why `dup` would not do.

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

/// While this value lives, the calling thread counts as one of the engine's. Used by engines that
/// share the application's descriptor table.
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
