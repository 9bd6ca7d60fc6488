//! The state of nowait in a process: one engine, made when needed and again in a forked child; the
//! queues of its threads; and its open files, whose data the exit writes.

use crate::{
    engine::ProcessEngine, handle::Handle, limits::Amount, operation::OperationQueue,
    reaper::drain, thread_queue::ThreadQueue,
};
use core::{
    cell::RefCell,
    mem, ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire, Release},
    },
};
use nowait_engine::choice;
use nowait_sys::mutex::Mutex;
use pyo3::prelude::*;
use std::sync::{Arc, Weak};

/// The engine, and the queues and files that the exit waits for. Never dropped.
pub(crate) struct PythonProcess {
    pub(crate) engine: ProcessEngine,
    queues: Mutex<Queues>,
    files: Mutex<Vec<Weak<Handle>>>,
}

#[derive(Default)]
struct Queues {
    all: Vec<Arc<OperationQueue>>,
    /// The queues of threads that have ended.
    free: Vec<Arc<OperationQueue>>,
}

static PROCESS: AtomicPtr<PythonProcess> = AtomicPtr::new(ptr::null_mut());
/// In a forked child: the state of the nearest ancestor that had one.
static PARENT: AtomicPtr<PythonProcess> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

/// The queue of a thread. When the thread ends, the queue goes to another thread.
struct Mine(Option<(&'static PythonProcess, Arc<OperationQueue>)>);

impl Drop for Mine {
    fn drop(&mut self) {
        if let Some((process, queue)) = self.0.take() {
            match process.engine.is_here() {
                true => process.queues.lock().free.push(queue),
                false => mem::forget(queue), // the parent's queue
            }
        }
    }
}

/// The first call of a thread takes over the queue of a thread that has ended, or makes a queue.
#[inline]
pub(crate) fn own_queue() -> PyResult<Arc<OperationQueue>> {
    let process = PythonProcess::get()?;
    let known = MINE.with_borrow(|mine| {
        let Some(Mine(Some((of, queue)))) = mine else { return None };
        ptr::eq(*of, process).then(|| queue.clone())
    });
    if let Some(queue) = known {
        return Ok(queue);
    }
    let queue = process.queue()?;
    let parents = MINE.replace(Some(Mine(Some((process, queue.clone())))));
    drop(parents);
    Ok(queue)
}

impl PythonProcess {
    #[inline]
    pub(crate) fn get() -> PyResult<&'static PythonProcess> {
        match PythonProcess::known() {
            Some(process) => Ok(process),
            None => PythonProcess::make(),
        }
    }

    #[inline]
    fn known() -> Option<&'static PythonProcess> {
        // SAFETY: null, or a process that is never dropped.
        unsafe { PROCESS.load(Acquire).as_ref() }
    }

    #[cold]
    fn make() -> PyResult<&'static PythonProcess> {
        // SAFETY: null, or a process that is never dropped.
        let parent = unsafe { PARENT.load(Acquire).as_ref() };
        let engine = ProcessEngine::start(parent.map(|parent| &parent.engine))?;
        let process = PythonProcess { engine, queues: Mutex::default(), files: Mutex::default() };
        let made = Box::into_raw(Box::new(process));
        match PROCESS.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            // SAFETY: just made, and not dropped from now on.
            Ok(_) => Ok(unsafe { &*made }),
            Err(first) => {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: another thread was first and has published it; it is never dropped.
                Ok(unsafe { &*first })
            }
        }
    }

    fn queue(&'static self) -> PyResult<Arc<OperationQueue>> {
        if let Some(free) = self.queues.lock().free.pop() {
            return Ok(free);
        }
        let made = Arc::new(ThreadQueue::new(&self.engine)?);
        self.queues.lock().all.push(made.clone());
        Ok(made)
    }

    /// Remembers an open file, so that the exit writes its data.
    pub(crate) fn opened(&self, file: &Arc<Handle>) {
        let mut files = self.files.lock();
        if files.len() == files.capacity() {
            files.retain(|file| file.strong_count() > 0);
        }
        files.push(Arc::downgrade(file));
    }
}

/// Called in a forked child: forgets the parent's engine, whose threads do not exist here.
#[pyfunction]
pub(crate) fn after_fork() {
    let parent = PROCESS.swap(ptr::null_mut(), AcqRel);
    if !parent.is_null() {
        PARENT.store(parent, Release);
    }
}

/// Requests and bytes, of the process and of each loop.
type LimitNumbers = (usize, u64, usize, u64);

#[pyfunction]
pub(crate) fn limits() -> PyResult<LimitNumbers> {
    let (process, each) = PythonProcess::get()?.engine.load.limits();
    Ok((process.requests, process.bytes, each.requests, each.bytes))
}

#[pyfunction]
pub(crate) fn set_limits(numbers: LimitNumbers) -> PyResult<()> {
    let (requests, bytes, loop_requests, loop_bytes) = numbers;
    let process = PythonProcess::get()?;
    let each = Amount { requests: loop_requests, bytes: loop_bytes };
    process.engine.load.set_limits((Amount { requests, bytes }, each));
    // Waiting requests may have a place now.
    process.queues.lock().all.iter().for_each(|queue| queue.signal());
    Ok(())
}

/// Returns the requests and bytes in flight of this thread's event loop, and the number of requests
/// that wait for their turn.
#[pyfunction]
pub(crate) fn in_flight() -> PyResult<(usize, u64, usize)> {
    Ok(own_queue()?.load())
}

/// Called at the exit. Waits for all requests in flight, and for calls other than opens and reads
/// of whole files. Then closes the open files, which writes back their cached data. Ends early if a
/// signal handler raises, as for Ctrl-C.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>) -> PyResult<()> {
    let Some(process) = PythonProcess::known() else { return Ok(()) };
    process.engine.wait_for_calls(py)?;
    let queues = process.queues.lock().all.clone();
    queues.iter().try_for_each(|queue| drain(queue, py))?;
    let files: Vec<_> = process.files.lock().drain(..).collect();
    for file in files.iter().filter_map(Weak::upgrade) {
        process.engine.run_aside(move || drop(file.take()));
    }
    process.engine.wait_for_calls(py)
}

/// Returns the name of the backend, the reason for it, and the default cache mode.
#[pyfunction]
pub(crate) fn backend() -> PyResult<(&'static str, String, &'static str)> {
    let process = PythonProcess::get()?;
    let name = choice::name(process.engine.nowait.backend());
    Ok((name, process.engine.nowait.backend_reason().to_owned(), process.engine.default_cache()))
}
