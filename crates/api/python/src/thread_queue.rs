//! The queue of a thread: what is submitted there, and how its ends come to the event loop.
//!
//! A thread has one queue, whichever loops run in it, one after another. Requests that are over
//! when the submission returns never get here again. For the others the loop watches two
//! descriptors: the queue's, and a bell for calls on helper threads. All that has ended is taken
//! at once.

use crate::{
    error::Failure,
    event_loop::{Running, running},
    operation::{Operation, Outcome},
    process::{LOOK, ProcessEngine},
    requests::{Action, DEPTH, Destination, Ended, Requests},
};
use core::{
    cell::RefCell,
    mem, ptr,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};
use nowait::File;
use nowait_sys::{eventfd::EventFd, mutex::Mutex};
use pyo3::{prelude::*, types::PyList};
use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// The requests of a thread.
pub(crate) struct ThreadQueue {
    requests: Mutex<Requests<Target>>,
    /// The loops that watch the descriptors.
    loops: Mutex<Vec<Py<PyAny>>>,
    /// What helper threads have done.
    landed: Mutex<Vec<Landed>>,
    bell: EventFd,
    /// The bell is readable, or about to be.
    rung: AtomicBool,
    process: &'static ProcessEngine,
}

/// What waits for the end of a request.
enum Target {
    One(Py<Operation>),
    /// Of several requests with one result, and which.
    Part(Arc<Batch>, usize),
}

impl Target {
    fn one(py: Python<'_>, operation: &Py<Operation>) -> Target {
        Target::One(operation.clone_ref(py))
    }

    /// Tells it of the end, in the thread whose loop is `here`.
    fn end(self, py: Python<'_>, outcome: Outcome, here: Option<&Bound<'_, PyAny>>) {
        match self {
            Target::One(operation) => Operation::end(operation.bind(py), outcome, here),
            Target::Part(batch, index) => batch.take(py, index, outcome, here),
        }
    }
}

/// Several reads, with one result.
struct Batch {
    operation: Py<Operation>,
    results: Mutex<Results>,
}

struct Results {
    values: Vec<Option<Py<PyAny>>>,
    left: usize,
    failure: Option<Failure>,
}

type Landed = (Py<Operation>, Box<dyn FnOnce(Python<'_>) -> Outcome + Send>);

thread_local! {
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

/// A thread's own own; given back when the thread ends.
struct Mine(Option<Arc<ThreadQueue>>);

impl Drop for Mine {
    fn drop(&mut self) {
        if let Some(own) = self.0.take() {
            match own.process.is_here() {
                true => own.process.give_back(own),
                false => mem::forget(own), // the parent's
            }
        }
    }
}

impl ThreadQueue {
    pub(crate) fn new(process: &'static ProcessEngine) -> PyResult<ThreadQueue> {
        let raise = |error| Failure::from(error).exception();
        let mut queue = process.nowait.queue(DEPTH).map_err(raise)?;
        queue.event_fd().map_err(raise)?;
        let bell = EventFd::new().map_err(|errno| {
            let text = format!("event loop: {errno}");
            Failure::System { errno: errno.raw(), text, path: None }.exception()
        })?;
        let (requests, loops) = (Mutex::new(Requests::new(queue)), Mutex::default());
        let (landed, rung) = (Mutex::default(), AtomicBool::new(false));
        Ok(ThreadQueue { requests, loops, landed, bell, rung, process })
    }

    /// Returns the own of this thread, which is made by the first call.
    #[inline]
    fn of_this_thread() -> PyResult<Arc<ThreadQueue>> {
        let process = ProcessEngine::get()?;
        let known = MINE.with_borrow(|mine| {
            let Some(Mine(Some(own))) = mine else { return None };
            ptr::eq(own.process, process).then(|| own.clone())
        });
        if let Some(own) = known {
            return Ok(own);
        }
        let made = process.queue()?;
        let parents = MINE.replace(Some(Mine(Some(made.clone()))));
        drop(parents);
        Ok(made)
    }

    /// Submits a request, and returns what to wait for.
    ///
    /// # Errors
    /// `RuntimeError`: no event loop runs in this thread; a read may be over without one. Failures
    /// of the request are its own.
    pub(crate) fn submit(py: Python<'_>, file: &File, action: Action) -> PyResult<Py<Operation>> {
        // To ask costs a system call before Python 3.12: reads ask when they have to wait.
        let known = match action {
            Action::Read(..) => None,
            _ => Some(running(py)?),
        };
        let own = ThreadQueue::of_this_thread()?;
        let operation = Operation::begun(py)?;
        let mut over = Over::default();
        {
            let (mut requests, load) = (own.requests.lock(), &own.process.load);
            match requests.read_at_once(py, file, action) {
                Ok(read) => over.push(Ended { target: Some(Target::one(py, &operation)), ..read }),
                Err(action) => {
                    let keys = requests.new_keys(1);
                    let target = (keys.start, Target::one(py, &operation));
                    operation.get().set_request(&own, keys);
                    requests.take(py, load, target, (file, action), &mut |end| over.push(end));
                    if requests.submit(load, &mut |end| over.push(end)) {
                        own.ring();
                    }
                }
            }
        }
        over.end(py);
        own.wait_for(py, known, operation)
    }

    /// Submits reads together, and returns what to wait for: the list of their results, or their
    /// first failure when all are over.
    ///
    /// # Errors
    /// Those of [`ThreadQueue::submit`].
    pub(crate) fn submit_many(
        py: Python<'_>,
        file: &File,
        reads: Vec<(usize, u64)>,
    ) -> PyResult<Py<Operation>> {
        let own = ThreadQueue::of_this_thread()?;
        let operation = Operation::begun(py)?;
        let results = Results::of(reads.len());
        if reads.is_empty() {
            Operation::end(operation.bind(py), results.outcome(py), None);
            return Ok(operation);
        }
        let mut over = Over { others: Vec::with_capacity(reads.len()), last: None };
        let (of, results) = (operation.clone_ref(py), Mutex::new(results));
        let batch = Arc::new(Batch { operation: of, results });
        {
            let (mut requests, load) = (own.requests.lock(), &own.process.load);
            let keys = requests.new_keys(reads.len());
            operation.get().set_request(&own, keys.clone());
            for (index, (key, (len, offset))) in keys.zip(reads).enumerate() {
                let read = Action::Read(Destination::New(len), offset);
                let target = (key, Target::Part(batch.clone(), index));
                requests.take(py, load, target, (file, read), &mut |end| over.push(end));
            }
            if requests.submit(load, &mut |end| over.push(end)) {
                own.ring();
            }
        }
        over.end(py);
        own.wait_for(py, None, operation)
    }

    /// Has the event loop that runs in this thread wait for an operation, unless that is over.
    ///
    /// # Errors
    /// `RuntimeError`: no event loop runs. The request goes on, and nothing waits for it.
    fn wait_for(
        self: &Arc<ThreadQueue>,
        py: Python<'_>,
        known: Option<Running<'_>>,
        operation: Py<Operation>,
    ) -> PyResult<Py<Operation>> {
        if !operation.get().is_over() {
            let running = known.map_or_else(|| running(py), Ok)?;
            self.watch(&running)?;
            operation.get().set_loop(running);
        }
        Ok(operation)
    }

    /// Has `work`, which may block, done on a helper thread. What it returns is called by the event
    /// loop, and makes the result.
    ///
    /// # Errors
    /// `RuntimeError`: no event loop runs in this thread.
    pub(crate) fn call<F>(
        py: Python<'_>,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> PyResult<Py<Operation>>
    where
        F: FnOnce(Python<'_>) -> Outcome + Send + 'static,
    {
        ThreadQueue::begin_call(py, work, ProcessEngine::run_aside)
    }

    /// The same, for a call that matters for its result only, and has no file that is open: the
    /// exit does not wait for it.
    pub(crate) fn ask<F>(
        py: Python<'_>,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> PyResult<Py<Operation>>
    where
        F: FnOnce(Python<'_>) -> Outcome + Send + 'static,
    {
        ThreadQueue::begin_call(py, work, ProcessEngine::ask_aside)
    }

    fn begin_call<F>(
        py: Python<'_>,
        work: impl FnOnce() -> F + Send + 'static,
        run: impl FnOnce(&'static ProcessEngine, Box<dyn FnOnce() + Send>),
    ) -> PyResult<Py<Operation>>
    where
        F: FnOnce(Python<'_>) -> Outcome + Send + 'static,
    {
        let running = running(py)?;
        let own = ThreadQueue::of_this_thread()?;
        let operation = own.wait_for(py, Some(running), Operation::begun(py)?)?;
        let (of, process) = (operation.clone_ref(py), own.process);
        let call = move || {
            if of.get().is_over() {
                return; // cancelled before its turn: what it holds is dropped here
            }
            let finish = catch_unwind(AssertUnwindSafe(work));
            own.land(
                of,
                Box::new(move |py| match finish {
                    Ok(finish) => finish(py),
                    Err(_) => Err(Failure::Runtime("a call of nowait panicked")),
                }),
            );
        };
        run(process, Box::new(call));
        Ok(operation)
    }

    fn land(
        &self,
        operation: Py<Operation>,
        finish: Box<dyn FnOnce(Python<'_>) -> Outcome + Send>,
    ) {
        self.landed.lock().push((operation, finish));
        self.ring();
    }

    /// Has the loop call [`ThreadQueue::reap`].
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, SeqCst) {
            self.bell.signal();
        }
    }

    /// Returns what is in flight, and how many requests wait for a place.
    pub(crate) fn load(py: Python<'_>) -> PyResult<(usize, u64, usize)> {
        let _ = py;
        let own = ThreadQueue::of_this_thread()?;
        let (in_flight, in_line) = own.requests.lock().load();
        Ok((in_flight.requests, in_flight.bytes, in_line))
    }

    /// Asks for an early end of requests whose operation was cancelled. What they leave behind is
    /// dropped without the lock: buffers may have code of the program's.
    pub(crate) fn cancel(&self, keys: Range<u64>) {
        let mut left = Vec::new();
        let mut requests = self.requests.lock();
        for key in keys {
            requests.cancel(&self.process.load, key, &mut |gone| left.push(gone));
        }
        drop(requests);
        drop(left);
    }

    /// Has the event loop call [`ThreadQueue::reap`] when requests have ended.
    pub(crate) fn watch(self: &Arc<ThreadQueue>, running: &Running<'_>) -> PyResult<()> {
        let event_loop = &running.event_loop;
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
        let reaper = Py::new(py, Reaper(self.clone()))?;
        for number in [queue, self.bell.raw()] {
            event_loop.call_method1("add_reader", (number, &reaper))?;
        }
        loops.push(event_loop.clone().unbind());
        *self.loops.lock() = loops;
        Ok(())
    }

    /// Takes everything that has ended, and ends the operations.
    fn reap(&self, py: Python<'_>) -> PyResult<()> {
        // In this order: what rings after the second line rings again.
        let is_rung = self.rung.load(SeqCst);
        if is_rung {
            self.bell.drain();
            self.rung.store(false, SeqCst);
        }
        let mut over = Vec::new();
        let more = self.requests.lock().reap(py, &self.process.load, &mut |end| over.push(end));
        if more.map_err(|error| Failure::from(error).exception())? {
            self.ring();
        }
        // That of what has ended may be another one, in another thread.
        let here = running(py).ok().map(|running| running.event_loop);
        let here = here.as_ref();
        over.into_iter().for_each(|ended| end(py, ended, here));
        if is_rung {
            let landed = mem::take(&mut *self.landed.lock());
            for (operation, finish) in landed {
                match operation.get().is_over() {
                    // Cancelled. What there is to drop may be a file, whose closing may block.
                    true => self.process.run_aside(move || drop(finish)),
                    false => Operation::end(operation.bind(py), finish(py), here),
                }
            }
        }
        Ok(())
    }

    /// Waits until nothing is in flight: for the exit.
    pub(crate) fn drain(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let waited = py.detach(|| {
                let mut requests = self.requests.lock();
                requests.wait_for_all(LOOK)
            });
            waited.map_err(|error| Failure::from(error).exception())?;
            py.check_signals()?;
            self.reap(py)?;
            if self.requests.lock().is_empty() {
                return Ok(());
            }
        }
    }
}

impl Results {
    fn of(count: usize) -> Results {
        Results { values: (0..count).map(|_| None).collect(), left: count, failure: None }
    }

    fn take(&mut self, index: usize, outcome: Outcome) {
        self.left -= 1;
        match outcome {
            Ok(value) => self.values[index] = Some(value),
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
    }

    /// Makes the list, or the failure, when all are over.
    fn outcome(self, py: Python<'_>) -> Outcome {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let values: Vec<_> = self.values.into_iter().flatten().collect();
        match PyList::new(py, values) {
            Ok(list) => Ok(list.into_any().unbind()),
            Err(_) => Err(Failure::Runtime("no memory for the list of results")),
        }
    }
}

impl Batch {
    /// Takes the end of one part; that of the last is the end of all.
    fn take(
        &self,
        py: Python<'_>,
        index: usize,
        outcome: Outcome,
        here: Option<&Bound<'_, PyAny>>,
    ) {
        let results = {
            let mut results = self.results.lock();
            results.take(index, outcome);
            if results.left > 0 {
                return;
            }
            mem::replace(&mut *results, Results::of(0))
        };
        Operation::end(self.operation.bind(py), results.outcome(py), here);
    }
}

/// Tells what waits for a request of its end, in the thread whose loop is `here`.
fn end(py: Python<'_>, ended: Ended<Target>, here: Option<&Bound<'_, PyAny>>) {
    let Ended { target, transfer, result } = ended;
    let value = || transfer.map_or_else(|| Ok(py.None()), |transfer| transfer.into_result(py));
    let outcome = result.and_then(|()| value());
    if let Some(target) = target {
        target.end(py, outcome, here);
    }
}

/// What is over when a submission returns: mostly nothing, or the one request that was submitted.
#[derive(Default)]
struct Over {
    others: Vec<Ended<Target>>,
    last: Option<Ended<Target>>,
}

impl Over {
    fn push(&mut self, ended: Ended<Target>) {
        self.others.extend(self.last.replace(ended));
    }

    fn end(self, py: Python<'_>) {
        self.others.into_iter().chain(self.last).for_each(|ended| end(py, ended, None));
    }
}

/// What an event loop calls when a descriptor is readable.
#[pyclass(frozen)]
struct Reaper(Arc<ThreadQueue>);

#[pymethods]
impl Reaper {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.reap(py)
    }
}
