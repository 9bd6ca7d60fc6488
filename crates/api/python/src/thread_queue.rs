//! The queue of a thread: its requests, and the descriptors that report their ends to an event
//! loop.
//!
//! A thread has one queue, which all event loops that run in the thread one after another use.
//! Requests that are over when the submission returns are not reported again. For the others the
//! loop watches two descriptors: the queue's, and an eventfd for helper threads and requests in
//! line.

use crate::{
    engine::ProcessEngine,
    error::{Failure, Outcome},
    limits::Load,
    requests::{DEPTH, Ended, Requests},
};
use core::{mem, ops::Range, time::Duration};
use nowait_sys::{eventfd::FlaggedEventFd, mutex::Mutex};
use pyo3::prelude::*;

pub(crate) struct ThreadQueue<T> {
    requests: Mutex<Requests<T>>,
    loops: Mutex<Vec<Py<PyAny>>>,
    finished_calls: Mutex<Vec<FinishedCall<T>>>,
    notifier: FlaggedEventFd,
    pub(crate) engine: &'static ProcessEngine,
}

/// The result of a call on a helper thread: its receiver, and the function that makes the value.
pub(crate) type FinishedCall<T> = (T, Box<dyn FnOnce(Python<'_>) -> Outcome + Send>);

pub(crate) struct Arrivals<T> {
    pub(crate) over: Vec<Ended<T>>,
    pub(crate) finished_calls: Vec<FinishedCall<T>>,
}

impl<T: Send> ThreadQueue<T> {
    pub(crate) fn new(engine: &'static ProcessEngine) -> PyResult<ThreadQueue<T>> {
        let raise = |error| Failure::from(error).exception();
        let mut queue = engine.nowait.queue(DEPTH).map_err(raise)?;
        queue.event_fd().map_err(raise)?;
        let notifier = FlaggedEventFd::new().map_err(|errno| {
            let text = format!("event loop: {errno}");
            Failure::System { errno: errno.raw(), text, path: None }.exception()
        })?;
        let (requests, loops) = (Mutex::new(Requests::new(queue)), Mutex::default());
        Ok(ThreadQueue { requests, loops, finished_calls: Mutex::default(), notifier, engine })
    }

    /// Holds the lock while `work` runs. `work` must run no Python code.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Requests<T>, &Load) -> R) -> R {
        work(&mut self.requests.lock(), &self.engine.load)
    }

    pub(crate) fn call_finished(&self, call: FinishedCall<T>) {
        self.finished_calls.lock().push(call);
        self.signal();
    }

    pub(crate) fn signal(&self) {
        self.notifier.signal();
    }

    pub(crate) fn load(&self) -> (usize, u64, usize) {
        let (in_flight, in_line) = self.requests.lock().load();
        (in_flight.requests, in_flight.bytes, in_line)
    }

    /// Drops the remains of requests in line without the lock, because the drop of a buffer may run
    /// code of the program.
    pub(crate) fn cancel(&self, keys: Range<u64>) {
        let mut left = Vec::new();
        self.with(|requests, load| {
            keys.for_each(|key| requests.cancel(load, key, &mut |gone| left.push(gone)));
        });
        drop(left);
    }

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
        for number in [queue, self.notifier.raw()] {
            event_loop.call_method1("add_reader", (number, &reaper))?;
        }
        loops.push(event_loop.clone().unbind());
        *self.loops.lock() = loops;
        Ok(())
    }

    /// Raises `OSError` if the queue belongs to the parent of this forked process.
    pub(crate) fn take_arrivals(&self, py: Python<'_>) -> PyResult<Arrivals<T>> {
        // Reset the eventfd before taking the results: a result that arrives after the reset then
        // makes the eventfd readable again.
        let was_signalled = self.notifier.reset();
        let mut over = Vec::new();
        let more = self.with(|requests, load| requests.reap(py, load, &mut |end| over.push(end)));
        if more.map_err(|error| Failure::from(error).exception())? {
            self.signal();
        }
        let finished_calls =
            if was_signalled { mem::take(&mut *self.finished_calls.lock()) } else { Vec::new() };
        Ok(Arrivals { over, finished_calls })
    }

    pub(crate) fn wait_for_all(&self, py: Python<'_>, at_most: Duration) -> PyResult<()> {
        let waited = py.detach(|| self.requests.lock().wait_for_all(at_most));
        waited.map(drop).map_err(|error| Failure::from(error).exception())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.lock().is_empty()
    }
}
