//! The steps of a server's start: a signal ends them, whatever they wait for.
//!
//! An image may be on a server or a store that does not answer, a name may have to be looked up, a
//! disk may stand still. Each step that may wait for such is done by a thread of its own, while the
//! main thread waits for its end or for a signal. A thread that is given up ends with the process.

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

/// Why there is no server.
#[derive(Debug)]
pub(super) enum Failure {
    /// A signal has ended the start.
    Signal,
    /// Something cannot be used.
    Error(ServeError),
}

impl<E: Into<ServeError>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Error(error.into())
    }
}

/// Signals when it is dropped, also by a panic.
struct Notifier(Arc<EventFd>);

impl Drop for Notifier {
    fn drop(&mut self) {
        self.0.signal();
    }
}

const SIGNALS: u64 = 0;
const DONE: u64 = 1;
/// How long all steps together may go on after a signal. One that ends has its outcome in good
/// hands, and a server that has started meanwhile ends as any other.
const GRACE_NS: u64 = 500_000_000;

/// The start of a server, which signals end. They are left to be taken.
pub(super) struct Start<'a> {
    ends: &'a Signals,
    /// When what is not done is given up, since a signal has come.
    gives_up: Cell<Option<Deadline>>,
}

impl<'a> Start<'a> {
    pub(super) fn new(ends: &'a Signals) -> Start<'a> {
        Start { ends, gives_up: Cell::new(None) }
    }

    /// Does `work`, which may wait for others, unless a signal comes.
    ///
    /// # Errors
    /// That of the work. [`Failure::Signal`]: the work is given up, and goes on until the process
    /// ends.
    pub(super) fn step<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
    ) -> Result<T, Failure> {
        let notifier = Arc::new(EventFd::new().map_err(ServeError::descriptors)?);
        let (tell, outcome) = mpsc::sync_channel(1);
        let signals_end = Notifier(notifier.clone());
        let done = move || {
            let _signals_end = signals_end;
            // Dropped before that one: a panic is no outcome, not one that is still to come.
            let tell = tell;
            // It is not received if the start was given up.
            let _ = tell.send(work());
        };
        let named = thread::Builder::new().name("nowait-start".to_owned());
        named.spawn(done).map_err(|error| ServeError::io("start of a thread", &error))?;
        self.wait(&notifier)?;
        match outcome.try_recv() {
            Ok(outcome) => outcome.map_err(Failure::Error),
            Err(TryRecvError::Empty) => Err(Failure::Signal),
            Err(TryRecvError::Disconnected) => {
                Err(ServeError::new("a thread that starts the server has panicked").into())
            }
        }
    }

    /// Waits until the work is done, or until the time after a signal is over.
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
    fn a_step_has_its_outcome_and_one_that_panics_is_an_error() {
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
