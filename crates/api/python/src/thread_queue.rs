//! The queue of a thread: its requests, and what tells an event loop of their ends.
//!
//! A thread has one queue, whichever loops run in it, one after another. Requests that are over
//! when the submission returns never get here again. For the others the loop watches two
//! descriptors: the queue's, and a bell for calls on helper threads. All that has ended is taken
//! at once.

use crate::{
    engine::ProcessEngine,
    error::{Failure, Outcome},
    limits::Load,
    requests::{DEPTH, Ended, Requests},
};
use core::{
    mem,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use nowait_sys::{eventfd::EventFd, mutex::Mutex};
use pyo3::prelude::*;

/// The requests of a thread; a `T` waits for the end of each.
pub(crate) struct ThreadQueue<T> {
    requests: Mutex<Requests<T>>,
    /// The loops that watch the descriptors.
    loops: Mutex<Vec<Py<PyAny>>>,
    /// Results of helper threads.
    landed: Mutex<Vec<Landed<T>>>,
    bell: EventFd,
    /// The bell is readable, or about to be.
    rung: AtomicBool,
    pub(crate) engine: &'static ProcessEngine,
}

/// A call that a helper thread has made: what waits for it, and what makes its result.
pub(crate) type Landed<T> = (T, Box<dyn FnOnce(Python<'_>) -> Outcome + Send>);

/// The ends since the last look.
pub(crate) struct News<T> {
    pub(crate) over: Vec<Ended<T>>,
    pub(crate) landed: Vec<Landed<T>>,
}

impl<T: Send> ThreadQueue<T> {
    pub(crate) fn new(engine: &'static ProcessEngine) -> PyResult<ThreadQueue<T>> {
        let raise = |error| Failure::from(error).exception();
        let mut queue = engine.nowait.queue(DEPTH).map_err(raise)?;
        queue.event_fd().map_err(raise)?;
        let bell = EventFd::new().map_err(|errno| {
            let text = format!("event loop: {errno}");
            Failure::System { errno: errno.raw(), text, path: None }.exception()
        })?;
        let (requests, loops) = (Mutex::new(Requests::new(queue)), Mutex::default());
        let (landed, rung) = (Mutex::default(), AtomicBool::new(false));
        Ok(ThreadQueue { requests, loops, landed, bell, rung, engine })
    }

    /// Calls `work` on the requests, under the lock: no code of Python's runs there.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Requests<T>, &Load) -> R) -> R {
        work(&mut self.requests.lock(), &self.engine.load)
    }

    /// Hands over the result of a call on a helper thread.
    pub(crate) fn land(&self, landed: Landed<T>) {
        self.landed.lock().push(landed);
        self.ring();
    }

    /// Makes the bell readable, so that the event loop looks for news.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, SeqCst) {
            self.bell.signal();
        }
    }

    /// Returns how many requests and bytes are in flight, and how many requests wait for a place.
    pub(crate) fn load(&self) -> (usize, u64, usize) {
        let (in_flight, in_line) = self.requests.lock().load();
        (in_flight.requests, in_flight.bytes, in_line)
    }

    /// Asks for an early end of requests whose operation was cancelled. What they leave behind is
    /// dropped without the lock: buffers may have code of the program's.
    pub(crate) fn cancel(&self, keys: Range<u64>) {
        let mut left = Vec::new();
        self.with(|requests, load| {
            keys.for_each(|key| requests.cancel(load, key, &mut |gone| left.push(gone)));
        });
        drop(left);
    }

    /// Makes an event loop call `reaper` when there is news, unless it does so already.
    pub(crate) fn watch(
        &self,
        event_loop: &Bound<'_, PyAny>,
        reaper: impl FnOnce() -> PyResult<Py<PyAny>>,
    ) -> PyResult<()> {
        let py = event_loop.py();
        let mut loops = self.loops.lock();
        if loops.iter().any(|known| known.is(event_loop)) {
            return Ok(());
        }
        let known = mem::take(&mut *loops);
        drop(loops);
        let queue = self.requests.lock().descriptor();
        let queue = queue.map_err(|error| Failure::from(error).exception())?;
        let mut loops = Vec::with_capacity(known.len() + 1);
        for other in known {
            if !other.bind(py).call_method0("is_closed")?.is_truthy()? {
                loops.push(other);
            }
        }
        let reaper = reaper()?;
        for number in [queue, self.bell.raw()] {
            event_loop.call_method1("add_reader", (number, &reaper))?;
        }
        loops.push(event_loop.clone().unbind());
        *self.loops.lock() = loops;
        Ok(())
    }

    /// Takes everything that has ended.
    ///
    /// # Errors
    /// `OSError`: the queue belongs to the process that this one was forked from.
    pub(crate) fn news(&self, py: Python<'_>) -> PyResult<News<T>> {
        // In this order: what rings after the second line rings again.
        let is_rung = self.rung.load(SeqCst);
        if is_rung {
            self.bell.drain();
            self.rung.store(false, SeqCst);
        }
        let mut over = Vec::new();
        let more = self.with(|requests, load| requests.reap(py, load, &mut |end| over.push(end)));
        if more.map_err(|error| Failure::from(error).exception())? {
            self.ring();
        }
        let landed = if is_rung { mem::take(&mut *self.landed.lock()) } else { Vec::new() };
        Ok(News { over, landed })
    }

    /// Waits until nothing is in flight, or for so long.
    pub(crate) fn wait_for_all(&self, py: Python<'_>, at_most: Duration) -> PyResult<()> {
        let waited = py.detach(|| self.requests.lock().wait_for_all(at_most));
        waited.map(drop).map_err(|error| Failure::from(error).exception())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.lock().is_empty()
    }
}
