//! The steps of a server's start. A signal ends a step, whatever it waits for.
//!
//! An image may be on a server or a store that does not answer, a host name may need a look-up, or
//! a disk may be stalled. A thread of its own runs each step that may wait, while the main thread
//! waits for its end or for a signal. A thread that was given up ends with the process.

use crate::ServeError;
use nowait_sys::{
    epoll::{self, Epoll},
    eventfd::EventFd,
    signalfd::Signals,
    time::Deadline,
};
use std::{
    cell::Cell,
    sync::{
        Arc,
        mpsc::{self, TryRecvError},
    },
    thread,
};

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

/// Signals an eventfd when it is dropped, also by a panic.
struct Notifier(Arc<EventFd>);

impl Drop for Notifier {
    fn drop(&mut self) {
        self.0.signal();
    }
}

const SIGNALS: u64 = 0;
const DONE: u64 = 1;
/// How long all steps together may continue after a signal. The result of a step that still ends is
/// dropped properly, and a server that has started ends like any other.
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

    /// Runs `work`, which may wait, until it is finished or a signal comes.
    ///
    /// # Errors
    /// The error of the work. [`Failure::Signal`]: the step was given up, and its thread continues
    /// until the process ends.
    pub(super) fn step<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
    ) -> Result<T, Failure> {
        let notifier = Arc::new(EventFd::new().map_err(ServeError::descriptors)?);
        let (tell, outcome) = mpsc::sync_channel(1);
        let signals_end = Notifier(notifier.clone());
        let done = move || {
            let _signals_end = signals_end;
            // Drop this before the notifier: after a panic, the receiver is then disconnected
            // rather than empty.
            let tell = tell;
            // The start may have been given up, and then no thread receives the result.
            let _ = tell.send(work());
        };
        let named = thread::Builder::new().name("nowait-start".to_owned());
        named.spawn(done).map_err(|error| ServeError::io("cannot start a thread", &error))?;
        self.wait(&notifier)?;
        match outcome.try_recv() {
            Ok(outcome) => outcome.map_err(Failure::Error),
            Err(TryRecvError::Empty) => Err(Failure::Signal),
            Err(TryRecvError::Disconnected) => {
                Err(ServeError::new("a thread that starts the server has panicked").into())
            }
        }
    }

    /// Waits until the step is finished, or until the grace period after a signal is over.
    fn wait(&self, notifier: &EventFd) -> Result<(), ServeError> {
        let epoll = Epoll::new().map_err(ServeError::descriptors)?;
        let watch = |fd, token| epoll.add(fd, epoll::IN, token).map_err(ServeError::descriptors);
        if self.gives_up.get().is_none() {
            watch(self.ends.raw(), SIGNALS)?;
        }
        watch(notifier.raw(), DONE)?;
        let mut ready = Vec::with_capacity(2);
        loop {
            let deadline = self.gives_up.get().unwrap_or(Deadline::NEVER);
            epoll.wait(&mut ready, deadline);
            if ready.iter().any(|event| event.token == DONE) || deadline.has_passed() {
                return Ok(());
            }
            if ready.iter().any(|event| event.token == SIGNALS) {
                epoll.remove(self.ends.raw()).map_err(ServeError::descriptors)?;
                self.gives_up.set(Some(Deadline::after_ns(GRACE_NS)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_sys::signalfd;

    #[test]
    fn a_step_returns_its_result_and_a_panic_is_an_error() {
        let ends = Signals::take(&[signalfd::TERM]).unwrap();
        let start = Start::new(&ends);
        assert_eq!(start.step(|| Ok(7)).unwrap(), 7);
        let refused = start.step::<()>(|| Err(ServeError::new("refused"))).unwrap_err();
        assert!(matches!(refused, Failure::Error(error) if error.to_string() == "refused"));
        let panicked = start.step::<()>(|| panic!("injected")).unwrap_err();
        assert!(
            matches!(panicked, Failure::Error(error) if error.to_string().contains("panicked"))
        );
    }
}
