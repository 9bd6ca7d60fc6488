//! A thread that the engine starts when it is needed, and that sleeps until another thread wakes
//! it.

use core::time::Duration;
use nowait_sys::mutex::{Condvar, Mutex};
use nowait_sys::{
    Errno,
    own_thread::{OwnHandle, OwnThread, STACK_BYTES},
    time::Deadline,
};

/// The thread, and the condition variable on which it sleeps.
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
    /// Starts the thread, unless it runs already or has been stopped.
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

    /// Wakes the thread, which checks `is_news` again; the caller has changed what `is_news` reads
    /// before.
    pub(crate) fn tell(&self) {
        let _between_look_and_sleep = self.state.lock();
        self.news.notify_all();
    }

    /// Sleeps until `is_news` returns `true`, the deadline has passed, or the thread is to end.
    /// `is_news` is checked at first and whenever the thread is woken.
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
