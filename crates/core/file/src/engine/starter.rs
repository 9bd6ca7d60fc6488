//! The outcome of the start of the engine's threads, for the thread that makes the engine.
//!
//! std's channels cannot be used: a thread that waits on a channel calls malloc, and glibc aborts
//! the process if that fails there.

use nowait_sys::Errno;
use nowait_sys::mutex::{Condvar, Mutex};
use std::sync::Arc;

#[derive(Default)]
struct Outcome {
    said: Mutex<Option<Result<(), Errno>>>,
    news: Condvar,
}

/// Held by the threads that start. Its drop reports EAGAIN if no outcome was reported before.
pub(crate) struct Starter(Arc<Outcome>);

impl Starter {
    /// Reports how the start ended.
    pub(crate) fn ended(&self, outcome: Result<(), Errno>) {
        self.0.said.lock().get_or_insert(outcome);
        self.0.news.notify_one();
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.ended(Err(Errno::AGAIN));
    }
}

/// The side of the thread that makes the engine.
pub(crate) struct Started(Arc<Outcome>);

impl Started {
    /// Waits until the start has ended.
    ///
    /// # Errors
    /// The errors that the starting threads reported.
    pub(crate) fn wait(&self) -> Result<(), Errno> {
        let mut said = self.0.said.lock();
        loop {
            match *said {
                Some(outcome) => return outcome,
                None => self.0.news.wait(&mut said),
            }
        }
    }
}

/// Makes both sides.
pub(crate) fn starting() -> (Starter, Started) {
    let outcome = Arc::<Outcome>::default();
    (Starter(outcome.clone()), Started(outcome))
}
