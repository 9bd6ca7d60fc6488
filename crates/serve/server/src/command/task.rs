//! Work that a disk, a store or a name server may delay. The work runs on a thread of its own, and
//! the server can stop waiting for it.

use crate::ServeError;
use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// If the server gives the work up, the thread continues until the work or the process ends.
pub(super) struct Task<T>(mpsc::Receiver<Result<T, ServeError>>);

/// The time between two calls of `is_over`.
const BETWEEN: Duration = Duration::from_millis(10);

impl<T: Send + 'static> Task<T> {
    pub(super) fn begin(
        name: &str,
        work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
    ) -> Result<Task<T>, ServeError> {
        let (done, outcome) = mpsc::sync_channel(1);
        let named = thread::Builder::new().name(name.to_owned());
        // The send fails if the server has stopped waiting.
        let thread = named.spawn(move || _ = done.send(work()));
        thread.map_err(|error| ServeError::io("cannot start a thread", &error))?;
        Ok(Task(outcome))
    }

    /// Waits for the result until `is_over` returns `true`; `None`: the work was given up. A panic
    /// of the work is an error.
    pub(super) fn wait(self, is_over: impl Fn() -> bool) -> Option<Result<T, ServeError>> {
        loop {
            match self.0.recv_timeout(BETWEEN) {
                Ok(outcome) => return Some(outcome),
                Err(RecvTimeoutError::Timeout) if is_over() => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Err(ServeError::new("a thread of the server has panicked")));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_returns_its_result_or_is_given_up_and_a_panic_is_an_error() {
        let wait = |work: fn() -> Result<u8, ServeError>| {
            Task::begin("nowait-test", work).unwrap().wait(|| false).unwrap()
        };
        assert_eq!(wait(|| Ok(7)).unwrap(), 7);
        let refused = wait(|| Err(ServeError::new("refused"))).unwrap_err();
        assert_eq!(refused.to_string(), "refused");
        let panicked = wait(|| panic!("injected")).unwrap_err();
        assert!(panicked.to_string().contains("panicked"), "{panicked}");
        let (_holds, held) = mpsc::channel::<()>();
        let never = Task::begin("nowait-test", move || {
            let _ = held.recv();
            Ok(())
        });
        assert!(never.unwrap().wait(|| true).is_none());
    }
}
