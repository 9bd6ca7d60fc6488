//! The outcome of the start of the engine's threads, for the thread that makes the engine.
//!
//! std's channels cannot be used: a thread that waits on a channel calls malloc, and glibc aborts
//! the process if that fails there.

use nowait_sys::Errno;
use std::sync::{Arc, OnceLock};

/// Held by the threads that start. Its drop reports EAGAIN if no outcome was reported before.
#[derive(Default)]
pub(crate) struct Starter(Arc<OnceLock<Result<(), Errno>>>);

impl Starter {
    /// Returns where the thread that makes the engine waits for the outcome.
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
