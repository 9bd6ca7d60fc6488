//! A thread that the engine starts when it is needed, and that sleeps until it is told something.

use core::time::Duration;
use nowait_sys::mutex::{Condvar, Mutex};
use nowait_sys::{
    Errno,
    own_thread::{OwnHandle, OwnThread, STACK_BYTES},
    time::Deadline,
};

/// The thread, and what it sleeps on.
#[derive(Default)]
pub(crate) struct Helper {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    thread: Option<OwnHandle>,
    stops: bool,
}

impl Helper {
    /// Starts the thread, unless it runs, or has been stopped.
    ///
    /// # Errors
    /// `EAGAIN`: there are too many threads.
    pub(crate) fn start(
        &self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.thread.is_none() && !state.stops {
            state.thread = Some(OwnThread::spawn(name, STACK_BYTES, body)?);
        }
        Ok(())
    }

    /// Returns `true` if the thread is to end.
    pub(crate) fn stops(&self) -> bool {
        self.state.lock().stops
    }

    /// Makes the thread look again. The caller has changed what it looks at before.
    pub(crate) fn tell(&self) {
        let _between_look_and_sleep = self.state.lock();
        self.news.notify_all();
    }

    /// Sleeps until there `is_news`, which is looked at when the thread is told something, the
    /// deadline, or the end.
    pub(crate) fn sleep(&self, deadline: Deadline, mut is_news: impl FnMut() -> bool) {
        let mut state = self.state.lock();
        while !state.stops && !is_news() {
            match deadline.remaining_ns() {
                Some(0) => break,
                Some(ns) => drop(self.news.wait_for(&mut state, Duration::from_nanos(ns))),
                None => self.news.wait(&mut state),
            }
        }
    }

    /// Ends the thread and waits for its end.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stops = true;
        self.news.notify_all();
        let thread = state.thread.take();
        drop(state);
        if let Some(thread) = thread {
            thread.join();
        }
    }
}
