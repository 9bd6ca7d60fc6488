//! Submits requests and calls, and returns the operations to wait for.

use crate::{
    batch::Results,
    engine::ProcessEngine,
    error::{Failure, Outcome},
    event_loop::{Running, running},
    operation::{Batch, Operation, OperationQueue, Target, end},
    process::own_queue,
    reaper::watch,
    requests::{Action, Destination, Ended},
};
use nowait::File;
use pyo3::prelude::*;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Raises `RuntimeError` if no event loop runs in this thread, and the request is not a read that
/// ends at once. Failures of the request itself are in the operation.
pub(crate) fn submit(py: Python<'_>, file: &File, action: Action) -> PyResult<Py<Operation>> {
    // Finding the loop costs a system call before Python 3.12: a read finds the loop only if the
    // read has to wait.
    let known = match action {
        Action::Read(..) => None,
        _ => Some(running(py)?),
    };
    let queue = own_queue()?;
    let operation = Operation::begun(py)?;
    let target = Target::One(operation.clone_ref(py));
    let mut over = Over::default();
    queue.with(|requests, load| match requests.read_at_once(py, file, action) {
        Ok(read) => over.push(Ended { target: Some(target), ..read }),
        Err(action) => {
            let keys = requests.new_keys(1);
            let named = (keys.start, target);
            operation.get().set_request(&queue, keys);
            requests.take(py, load, named, (file, action), &mut |end| over.push(end));
            if requests.submit(load, &mut |end| over.push(end)) {
                queue.signal();
            }
        }
    });
    over.end(py);
    wait_for(py, &queue, known, operation)
}

/// The returned operation ends with the list of the results, or with the first failure, when all
/// reads are over.
pub(crate) fn submit_many(
    py: Python<'_>,
    file: &File,
    reads: Vec<(usize, u64)>,
) -> PyResult<Py<Operation>> {
    if reads.is_empty() {
        return Operation::over(py, Results::of(0).outcome(py));
    }
    let queue = own_queue()?;
    let operation = Operation::begun(py)?;
    let batch = Arc::new(Batch::new(operation.clone_ref(py), reads.len()));
    let mut over = Over::with_capacity(reads.len());
    queue.with(|requests, load| {
        let keys = requests.new_keys(reads.len());
        operation.get().set_request(&queue, keys.clone());
        for (index, (key, (len, offset))) in keys.zip(reads).enumerate() {
            let read = Action::Read(Destination::New(len), offset);
            let target = Target::Part(batch.clone(), index);
            requests.take(py, load, (key, target), (file, read), &mut |end| over.push(end));
        }
        if requests.submit(load, &mut |end| over.push(end)) {
            queue.signal();
        }
    });
    over.end(py);
    wait_for(py, &queue, None, operation)
}

/// Runs `work`, which may block, on a helper thread. The event loop calls the function that `work`
/// returns, which makes the result. The exit of the process waits for `work`.
pub(crate) fn call<F>(
    py: Python<'_>,
    work: impl FnOnce() -> F + Send + 'static,
) -> PyResult<Py<Operation>>
where
    F: FnOnce(Python<'_>) -> Outcome + Send + 'static,
{
    begin_call(py, work, ProcessEngine::run_aside)
}

/// Runs `work` as [`call`] does, but the exit does not wait for it: for a call that matters only
/// for its result, and has no open file.
pub(crate) fn ask<F>(
    py: Python<'_>,
    work: impl FnOnce() -> F + Send + 'static,
) -> PyResult<Py<Operation>>
where
    F: FnOnce(Python<'_>) -> Outcome + Send + 'static,
{
    begin_call(py, work, ProcessEngine::ask_aside)
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
    let queue = own_queue()?;
    let operation = wait_for(py, &queue, Some(running), Operation::begun(py)?)?;
    let (target, engine) = (Target::One(operation.clone_ref(py)), queue.engine);
    let call = move || {
        if target.is_over() {
            return; // cancelled before its turn: `work` is dropped here
        }
        let finish = catch_unwind(AssertUnwindSafe(work));
        let finish = Box::new(move |py: Python<'_>| match finish {
            Ok(finish) => finish(py),
            Err(_) => Err(Failure::Runtime("a call of nowait panicked")),
        });
        queue.call_finished((target, finish));
    };
    run(engine, Box::new(call));
    Ok(operation)
}

/// Makes the event loop that runs in this thread wait for an operation, if the operation is not
/// over. Raises `RuntimeError` if no loop runs; then the request continues, and no task waits for
/// its end.
fn wait_for(
    py: Python<'_>,
    queue: &Arc<OperationQueue>,
    known: Option<Running<'_>>,
    operation: Py<Operation>,
) -> PyResult<Py<Operation>> {
    if !operation.get().is_over() {
        let running = known.map_or_else(|| running(py), Ok)?;
        watch(queue, &running)?;
        operation.get().set_loop(running);
    }
    Ok(operation)
}

/// Requests that are over when a submission returns: mostly none, or the request just submitted.
#[derive(Default)]
struct Over {
    others: Vec<Ended<Target>>,
    last: Option<Ended<Target>>,
}

impl Over {
    fn with_capacity(count: usize) -> Over {
        Over { others: Vec::with_capacity(count), last: None }
    }

    fn push(&mut self, ended: Ended<Target>) {
        self.others.extend(self.last.replace(ended));
    }

    fn end(self, py: Python<'_>) {
        self.others.into_iter().chain(self.last).for_each(|ended| end(py, ended, None));
    }
}
