//! Brings the results of requests to their operations: an event loop watches the queue of its
//! thread, or a thread waits.

use crate::{
    engine::LOOK,
    event_loop::{Running, running},
    operation::{Operation, OperationQueue, end},
    thread_queue::Arrivals,
};
use pyo3::prelude::*;
use std::sync::Arc;

#[pyclass(frozen)]
struct Reaper(Arc<OperationQueue>);

#[pymethods]
impl Reaper {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        reap(&self.0, py)
    }
}

pub(crate) fn watch(queue: &Arc<OperationQueue>, running: &Running<'_>) -> PyResult<()> {
    let event_loop = &running.event_loop;
    queue.watch(event_loop, || Ok(Py::new(event_loop.py(), Reaper(queue.clone()))?.into_any()))
}

fn reap(queue: &OperationQueue, py: Python<'_>) -> PyResult<()> {
    let Arrivals { over, finished_calls } = queue.take_arrivals(py)?;
    // The operation of a request that has ended may belong to another loop, in another thread.
    let here = running(py).ok().map(|running| running.event_loop);
    let here = here.as_ref();
    over.into_iter().for_each(|ended| end(py, ended, here));
    for (target, finish) in finished_calls {
        match target.is_over() {
            // Cancelled. `finish` may hold a file, whose close may block.
            true => queue.engine.run_aside(move || drop(finish)),
            false => target.end(py, finish(py), here),
        }
    }
    Ok(())
}

/// Waits until no request is in flight or in line, and ends the operations of the requests.
pub(crate) fn drain(queue: &OperationQueue, py: Python<'_>) -> PyResult<()> {
    loop {
        queue.wait_for_all(py, LOOK)?;
        py.check_signals()?;
        reap(queue, py)?;
        if queue.is_empty() {
            return Ok(());
        }
    }
}

/// Moves an operation to the event loop that runs here: the loop in which it began has ended.
#[pyfunction]
pub(crate) fn adopt(operation: &Bound<'_, Operation>) -> PyResult<()> {
    let running = running(operation.py())?;
    let operation = operation.get();
    let Some(queue) = operation.queue().filter(|_| !operation.is_of(&running)) else {
        return Ok(());
    };
    watch(&queue, &running)?;
    operation.set_loop(running);
    Ok(())
}

/// Waits, in a thread without an event loop, for the end of an operation and of all other requests
/// in its queue.
#[pyfunction]
pub(crate) fn finish(py: Python<'_>, operation: &Bound<'_, Operation>) -> PyResult<()> {
    operation.get().queue().map_or(Ok(()), |queue| drain(&queue, py))
}
