//! The steps of a server's start. A signal ends a step, whatever it waits for.

use super::task::Task;
use crate::ServeError;
use nowait_sys::{signalfd::Signals, time::Deadline};
use std::cell::Cell;

/// The reason why the server has not started.
#[derive(Debug)]
pub(super) enum Failure {
    /// A signal has ended the start.
    Signal,
    /// An image, address or file cannot be used.
    Error(ServeError),
}

impl<E: Into<ServeError>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Error(error.into())
    }
}

/// How long all steps together may continue after a signal. The result of a step that ends within
/// this time is dropped, which closes images and removes files; a server that has started ends like
/// any other. A step that takes longer may leave files.
const GRACE_NS: u64 = 500_000_000;

/// The start of a server, which signals end. It leaves the signals pending.
pub(super) struct Start<'a> {
    ends: &'a Signals,
    /// The time to give up an unfinished step, once a signal has come.
    gives_up: Cell<Option<Deadline>>,
}

impl<'a> Start<'a> {
    pub(super) fn new(ends: &'a Signals) -> Start<'a> {
        Start { ends, gives_up: Cell::new(None) }
    }

    /// Runs `work`, which may wait, until it is finished or [`GRACE_NS`] after a signal.
    ///
    /// # Errors
    /// The error of the work. [`Failure::Signal`]: the step was given up, and its thread continues
    /// until the process ends.
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
