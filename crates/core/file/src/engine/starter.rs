//! How the start of an engine's threads ended, told to the thread that makes the engine.
//!
//! std's channels would do, but a thread that waits for one calls malloc, and glibc ends the
//! process where that fails.

use nowait_sys::Errno;
use nowait_sys::mutex::{Condvar, Mutex};
use std::sync::Arc;

#[derive(Default)]
struct Outcome {
    said: Mutex<Option<Result<(), Errno>>>,
    news: Condvar,
}

/// Held by the threads that start: dropped, it says EAGAIN if nothing else was said.
pub(crate) struct Starter(Arc<Outcome>);

impl Starter {
    /// Says how the start ended.
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

/// The maker's side.
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
