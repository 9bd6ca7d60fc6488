//! The outcome of the start of the engine's threads, for the thread that makes the engine.
//!
//! std's channels cannot be used: a thread that waits on a channel calls malloc, and glibc aborts
//! the process if that fails there.

use nowait_sys::Errno;
use std::sync::{Arc, OnceLock};

/// The drop of a starter reports EAGAIN if no outcome was reported before.
#[derive(Default)]
pub(crate) struct Starter(Arc<OnceLock<Result<(), Errno>>>);

impl Starter {
    pub(crate) fn outcome(&self) -> Arc<OnceLock<Result<(), Errno>>> {
        self.0.clone()
    }

    pub(crate) fn ended(&self, outcome: Result<(), Errno>) {
        let _ = self.0.set(outcome);
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.ended(Err(Errno::AGAIN));
    }
}
