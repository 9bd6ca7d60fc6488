//! The steps of a server's start. After a signal the server waits only briefly for a step, whatever
//! the step waits for.

use super::task::Task;
use crate::ServeError;
use nowait_sys::{signalfd::Signals, time::Deadline};
use std::cell::Cell;

#[derive(Debug)]
pub(super) enum Failure {
    /// The start was given up after a signal.
    Signal,
    Error(ServeError),
}

impl<E: Into<ServeError>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Error(error.into())
    }
}

/// How long the start may continue after a signal, all steps together. A server that has started
/// within this time ends like any other. Otherwise the results of the finished steps are dropped,
/// which closes images and removes files; the unfinished step may leave files.
const GRACE_NS: u64 = 500_000_000;

/// The start of a server. Looks for pending signals, and leaves them pending.
pub(super) struct Start<'a> {
    ends: &'a Signals,
    /// The time at which the start gives up an unfinished step; `None`: no signal was seen.
    gives_up: Cell<Option<Deadline>>,
}

impl<'a> Start<'a> {
    pub(super) fn new(ends: &'a Signals) -> Start<'a> {
        Start { ends, gives_up: Cell::new(None) }
    }

    /// Runs `work` on a thread of its own, and waits for the result, at most until [`GRACE_NS`]
    /// after a signal.
    ///
    /// # Errors
    /// [`Failure::Signal`]: the start gave the step up, and the step's thread continues until
    /// `work` or the process ends.
    pub(super) fn step<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
    ) -> Result<T, Failure> {
        let outcome = Task::begin("nowait-start", work)?.wait(|| self.is_over());
        outcome.map_or(Err(Failure::Signal), |outcome| outcome.map_err(Failure::Error))
    }

    fn is_over(&self) -> bool {
        if self.gives_up.get().is_none() && self.ends.is_pending() {
            self.gives_up.set(Some(Deadline::after_ns(GRACE_NS)));
        }
        self.gives_up.get().is_some_and(Deadline::has_passed)
    }
}
