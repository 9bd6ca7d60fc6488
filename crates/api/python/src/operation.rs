//! The awaitable of Python: a request, as a future of asyncio.
//!
//! A task of asyncio or uvloop can wait for any object with `_asyncio_future_blocking`: the task
//! adds a callback to the object, and takes the result when the callback runs. An operation that is
//! done when it is awaited returns its result in the first step, so the task does not wait for it.
//!
//! Under trio, the `await` runs a coroutine of `nowait/_trio.py`, which adds a callback that
//! resumes the task.

use crate::{
    batch::Results,
    error::{Failure, Outcome, cancelled, not_over},
    event_loop::{Running, call_soon, copied_context, running},
    requests::Ended,
    thread_queue::ThreadQueue,
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use nowait_sys::mutex::Mutex;
use pyo3::{
    PyTraverseError, PyVisit, ffi, intern,
    prelude::*,
    types::{PyDict, PyType},
};
use std::{mem, ops::Range, sync::Arc};

/// A submitted request, and its result when it is over. It is awaitable, by more than one task and
/// more than once, and a future for `asyncio.gather`, `wait`, `shield`, `wait_for`.
#[pyclass(module = "nowait", frozen, freelist = 64)]
pub struct Operation {
    state: Mutex<State>,
    /// A flag of asyncio's protocol: an `await` that suspends sets it, the task resets it.
    blocking: AtomicBool,
    /// `true`: the event loop is a run of trio.
    is_trio: AtomicBool,
}

struct State {
    phase: Phase,
    callbacks: Vec<Callback>,
    /// The event loop that calls the callbacks. `None`: the request was over at once, or the loop
    /// is not set yet.
    event_loop: Option<Py<PyAny>>,
    request: Option<(Arc<OperationQueue>, Range<u64>)>,
}

pub(crate) type OperationQueue = ThreadQueue<Target>;

pub(crate) enum Target {
    One(Py<Operation>),
    Part(Arc<Batch>, usize),
}

pub(crate) struct Batch {
    operation: Py<Operation>,
    results: Mutex<Results>,
}

type Callback = (Py<PyAny>, Option<Py<PyAny>>);

enum Phase {
    Pending,
    Done(Py<PyAny>),
    Failed {
        failure: Failure,
        /// `true`: the program has received the failure.
        told: bool,
    },
    Cancelled(Option<Py<PyAny>>),
}

impl From<Outcome> for Phase {
    fn from(outcome: Outcome) -> Phase {
        match outcome {
            Ok(value) => Phase::Done(value),
            Err(failure) => Phase::Failed { failure, told: false },
        }
    }
}

impl Operation {
    pub(crate) fn over(py: Python<'_>, outcome: Outcome) -> PyResult<Py<Operation>> {
        Operation::new(py, outcome.into())
    }

    /// If the request does not end at once, the caller calls [`Operation::set_loop`].
    pub(crate) fn begun(py: Python<'_>) -> PyResult<Py<Operation>> {
        Operation::new(py, Phase::Pending)
    }

    fn new(py: Python<'_>, phase: Phase) -> PyResult<Py<Operation>> {
        let state = State { phase, callbacks: Vec::new(), event_loop: None, request: None };
        let (blocking, is_trio) = (AtomicBool::new(false), AtomicBool::new(false));
        let operation = Py::new(py, Operation { state: Mutex::new(state), blocking, is_trio })?;
        let object = operation.as_ptr();
        // SAFETY: a live object that can be tracked. A recycled object is not tracked, and the
        // collector would never look at it.
        unsafe {
            if ffi::PyObject_GC_IsTracked(object) == 0 {
                ffi::PyObject_GC_Track(object.cast());
            }
        }
        Ok(operation)
    }

    pub(crate) fn is_over(&self) -> bool {
        !matches!(self.state.lock().phase, Phase::Pending)
    }

    pub(crate) fn set_loop(&self, running: Running<'_>) {
        self.is_trio.store(running.is_trio, Relaxed);
        let before = self.state.lock().event_loop.replace(running.event_loop.unbind());
        drop(before);
    }

    /// Also returns `true` if the operation has no event loop.
    pub(crate) fn is_of(&self, running: &Running<'_>) -> bool {
        let state = self.state.lock();
        state.event_loop.as_ref().is_none_or(|it| it.is(&running.event_loop))
    }

    pub(crate) fn queue(&self) -> Option<Arc<OperationQueue>> {
        self.state.lock().request.as_ref().map(|(queue, _)| queue.clone())
    }

    pub(crate) fn set_request(&self, queue: &Arc<OperationQueue>, keys: Range<u64>) {
        self.state.lock().request = Some((queue.clone(), keys));
    }

    /// If the operation was cancelled before, only drops the outcome. `here` is the event loop that
    /// runs in this thread.
    pub(crate) fn end(
        slf: &Bound<'_, Operation>,
        outcome: Outcome,
        here: Option<&Bound<'_, PyAny>>,
    ) {
        let mut state = slf.get().state.lock();
        if !matches!(state.phase, Phase::Pending) {
            drop(state);
            return; // drops `outcome`, without the lock
        }
        state.phase = outcome.into();
        let is_here = match (&state.event_loop, here) {
            (Some(event_loop), Some(here)) => event_loop.is(here),
            _ => false,
        };
        Operation::call_back(slf, state, is_here);
    }

    /// Releases the lock before it calls the event loop.
    fn call_back(
        slf: &Bound<'_, Operation>,
        mut state: nowait_sys::mutex::MutexGuard<'_, State>,
        is_here: bool,
    ) {
        let py = slf.py();
        let callbacks = mem::take(&mut state.callbacks);
        let request = state.request.take();
        let event_loop = state.event_loop.as_ref().map(|event_loop| event_loop.clone_ref(py));
        drop(state);
        drop(request);
        let Some(event_loop) = event_loop else { return };
        // For trio, `call_soon` of `nowait/_trio.py` finds out which thread calls.
        let call = if is_here || slf.get().is_trio.load(Relaxed) {
            intern!(py, "call_soon")
        } else {
            intern!(py, "call_soon_threadsafe")
        };
        for (callback, context) in callbacks {
            // The call fails if the loop was closed; then no task waits.
            let _ = call_soon(event_loop.bind(py), call, slf.as_any(), &callback, context.as_ref());
        }
    }

    /// `None`: the operation is not over.
    fn outcome(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let mut state = self.state.lock();
        match &mut state.phase {
            Phase::Pending => None,
            Phase::Done(value) => Some(Ok(value.clone_ref(py))),
            Phase::Failed { failure, told } => {
                *told = true;
                Some(Err(failure.exception()))
            }
            Phase::Cancelled(message) => {
                let message = message.as_ref().map(|message| message.clone_ref(py));
                drop(state);
                Some(Err(cancelled(py, message)))
            }
        }
    }
}

#[pymethods]
impl Operation {
    fn __await__(slf: Bound<'_, Operation>) -> PyResult<Bound<'_, PyAny>> {
        if !slf.get().is_trio.load(Relaxed) {
            return Ok(slf.into_any());
        }
        let py = slf.py();
        let run = slf.get().get_loop(py)?;
        let waits = run.bind(py).call_method1(intern!(py, "wait"), (slf,))?;
        waits.call_method0(intern!(py, "__await__"))
    }

    fn __iter__(slf: Bound<'_, Operation>) -> PyResult<Bound<'_, PyAny>> {
        Operation::__await__(slf)
    }

    fn __next__(slf: &Bound<'_, Operation>) -> PyResult<Option<Py<Operation>>> {
        let py = slf.py();
        match slf.get().outcome(py) {
            None => {
                slf.get().blocking.store(true, Relaxed);
                Ok(Some(slf.clone().unbind()))
            }
            Some(Ok(value)) => {
                // SAFETY: both are live objects. The value is neither a tuple nor an exception,
                // which CPython would take for the exception's arguments. An iterator returns NULL
                // with this exception set to return a value.
                unsafe { ffi::PyErr_SetObject(ffi::PyExc_StopIteration, value.as_ptr()) };
                Ok(None)
            }
            Some(Err(error)) => Err(error),
        }
    }

    #[getter]
    fn _asyncio_future_blocking(&self) -> bool {
        self.blocking.load(Relaxed)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        self.blocking.store(blocking, Relaxed);
    }

    /// Returns the event loop that the operation belongs to, or else the loop that runs in this
    /// thread.
    fn get_loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let known = self.state.lock().event_loop.as_ref().map(|it| it.clone_ref(py));
        match known {
            Some(event_loop) => Ok(event_loop),
            None => Ok(running(py)?.event_loop.unbind()),
        }
    }

    /// Returns `True` if the operation is over.
    fn done(&self) -> bool {
        self.is_over()
    }

    /// Returns `True` if the operation was cancelled.
    fn cancelled(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Cancelled(_))
    }

    /// Returns the result; raises the operation's failure, or `InvalidStateError`.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.outcome(py).unwrap_or_else(|| Err(not_over(py)))
    }

    /// Returns the operation's failure, or `None`. If the operation was cancelled or is not over,
    /// raises as `result` does.
    fn exception(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.cancelled() {
            return self.result(py).map(Some);
        }
        match self.outcome(py) {
            None => Err(not_over(py)),
            Some(Ok(_)) => Ok(None),
            Some(Err(error)) => Ok(Some(error.into_value(py).into_any())),
        }
    }

    /// Makes the event loop call `callback` with this object when the operation is over.
    #[pyo3(signature = (callback, /, *, context = None))]
    fn add_done_callback(
        slf: &Bound<'_, Operation>,
        callback: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let context = match context {
            Some(context) => Some(context),
            None => Some(copied_context(py)?),
        };
        let mut state = slf.get().state.lock();
        if matches!(state.phase, Phase::Pending) {
            state.callbacks.push((callback, context));
            return Ok(());
        }
        drop(state);
        let event_loop = slf.get().get_loop(py)?;
        let call = intern!(py, "call_soon");
        call_soon(event_loop.bind(py), call, slf.as_any(), &callback, context.as_ref())
    }

    /// Removes a callback; returns the number of its registrations.
    fn remove_done_callback(&self, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = callback.py();
        let known = |state: &State| {
            let callbacks = state.callbacks.iter();
            callbacks.map(|(other, _)| other.clone_ref(py)).collect::<Vec<_>>()
        };
        // Compare callbacks without the lock, because a comparison runs code of the program; that
        // code may also fail.
        let others = known(&self.state.lock());
        let mut gone = Vec::new();
        for other in others {
            if other.bind(py).eq(callback)? {
                gone.push(other);
            }
        }
        let mut state = self.state.lock();
        let is_gone = |(other, _): &mut Callback| gone.iter().any(|it| it.is(&*other));
        let removed: Vec<_> = state.callbacks.extract_if(.., is_gone).collect();
        drop(state);
        Ok(removed.len())
    }

    /// Ends an operation that [`turn`] has made. Returns `True` if the operation was neither over
    /// nor cancelled.
    fn grant(slf: &Bound<'_, Operation>) -> bool {
        let mut state = slf.get().state.lock();
        let awaited = matches!(state.phase, Phase::Pending);
        if awaited {
            state.phase = Phase::Done(slf.py().None());
            Operation::call_back(slf, state, true);
        }
        awaited
    }

    /// Removes a callback. If no callback is left, cancels the operation.
    fn leave(slf: &Bound<'_, Operation>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.get().remove_done_callback(callback)?;
        if slf.get().state.lock().callbacks.is_empty() {
            Operation::cancel(slf, None);
        }
        Ok(())
    }

    /// Ends the wait with `CancelledError`, and asks the engine to end the request early. The
    /// engine keeps the buffer until the request has ended; a write may have happened, in part or
    /// whole.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Operation>, msg: Option<Py<PyAny>>) -> bool {
        let mut state = slf.get().state.lock();
        if !matches!(state.phase, Phase::Pending) {
            return false;
        }
        state.phase = Phase::Cancelled(msg);
        let request = state.request.take();
        Operation::call_back(slf, state, true);
        if let Some((queue, keys)) = request {
            queue.cancel(keys);
        }
        true
    }

    /// For asyncio: makes the exception of a cancelled operation.
    fn _make_cancelled_error(&self, py: Python<'_>) -> Py<PyAny> {
        cancelled(py, self.cancel_message(py)).into_value(py).into_any()
    }

    /// For asyncio's `gather`: the message that was passed to `cancel`.
    #[getter(_cancel_message)]
    fn cancel_message(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.state.lock().phase {
            Phase::Cancelled(message) => message.as_ref().map(|message| message.clone_ref(py)),
            _ => None,
        }
    }

    /// For the garbage collector: a callback, or an opened file, may hold the operation.
    ///
    /// A thread holds the lock only while it is attached. If the collector runs while a thread
    /// holds the lock, this function visits nothing, and everything that the operation holds stays
    /// alive.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        match &state.phase {
            Phase::Done(value) => visit.call(value)?,
            Phase::Cancelled(message) => visit.call(message)?,
            Phase::Pending | Phase::Failed { .. } => {}
        }
        for (callback, context) in &state.callbacks {
            visit.call(callback)?;
            visit.call(context)?;
        }
        visit.call(&state.event_loop)
    }

    fn __clear__(slf: &Bound<'_, Operation>) {
        let mut state = slf.get().state.lock();
        // A failure that no task has received still needs the event loop, and holds no other
        // object.
        let phase = match &state.phase {
            Phase::Done(_) => mem::replace(&mut state.phase, Phase::Done(slf.py().None())),
            Phase::Cancelled(_) => mem::replace(&mut state.phase, Phase::Cancelled(None)),
            Phase::Pending | Phase::Failed { .. } => Phase::Pending,
        };
        let callbacks = mem::take(&mut state.callbacks);
        drop(state);
        drop((phase, callbacks));
    }

    fn __repr__(&self) -> String {
        let word = match &self.state.lock().phase {
            Phase::Pending => "pending",
            Phase::Done(_) => "done",
            Phase::Failed { .. } => "failed",
            Phase::Cancelled(_) => "cancelled",
        };
        format!("<nowait.Operation {word}>")
    }

    #[classmethod]
    fn __class_getitem__(class: &Bound<'_, PyType>, _item: &Bound<'_, PyAny>) -> Py<PyAny> {
        class.clone().into_any().unbind()
    }
}

impl Target {
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Target::One(operation) => operation.get().is_over(),
            Target::Part(batch, _) => batch.operation.get().is_over(),
        }
    }

    pub(crate) fn end(self, py: Python<'_>, outcome: Outcome, here: Option<&Bound<'_, PyAny>>) {
        match self {
            Target::One(operation) => Operation::end(operation.bind(py), outcome, here),
            Target::Part(batch, index) => batch.take(py, index, outcome, here),
        }
    }
}

impl Batch {
    pub(crate) fn new(operation: Py<Operation>, count: usize) -> Batch {
        Batch { operation, results: Mutex::new(Results::of(count)) }
    }

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
            if !results.is_over() {
                return;
            }
            mem::replace(&mut *results, Results::of(0))
        };
        Operation::end(self.operation.bind(py), results.outcome(py), here);
    }
}

pub(crate) fn end(py: Python<'_>, ended: Ended<Target>, here: Option<&Bound<'_, PyAny>>) {
    let Ended { target, transfer, result } = ended;
    let value = || transfer.map_or_else(|| Ok(py.None()), |transfer| transfer.into_result(py));
    let outcome = result.and_then(|()| value());
    if let Some(target) = target {
        target.end(py, outcome, here);
    }
}

impl Drop for Operation {
    /// Reports a failure that the program has not received, as asyncio does for its futures.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let Phase::Failed { failure, told: false } = &state.phase else { return };
        let Some(event_loop) = state.event_loop.take() else { return };
        let failure = failure.clone();
        Python::attach(|py| {
            let told = PyDict::new(py);
            let text = "the failure of a file operation was never retrieved";
            let _ = told.set_item("message", text);
            let _ = told.set_item("exception", failure.exception().into_value(py));
            let _ = event_loop.call_method1(py, "call_exception_handler", (told,));
        });
    }
}

/// Returns an operation that [`Operation::grant`] ends: for the lock of a stream.
#[pyfunction]
pub(crate) fn turn(py: Python<'_>) -> PyResult<Py<Operation>> {
    let (running, operation) = (running(py)?, Operation::begun(py)?);
    operation.get().set_loop(running);
    Ok(operation)
}
