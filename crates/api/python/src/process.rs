//! One engine for the process: made when it is needed, anew in a forked child, and left at exit
//! with nothing unwritten.

use crate::{
    error::Failure,
    file::Handle,
    limits::{Amount, Load},
    thread_queue::ThreadQueue,
};
use core::{
    mem, ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire, Release},
    },
    time::Duration,
};
use nowait::{BackendChoice, Builder, Limits, Nowait};
use nowait_engine::{Options, choice};
use nowait_sys::{
    mutex::{Condvar, Mutex},
    stderr,
};
use pyo3::prelude::*;
use std::sync::{Arc, Weak};

/// The engine, and what must be waited for at exit. Never dropped: the process ends with it, and
/// a forked child cannot.
pub(crate) struct ProcessEngine {
    pub(crate) nowait: Nowait,
    pub(crate) load: Load,
    /// Files are cached by nowait unless the program says otherwise.
    user_cache: bool,
    queues: Mutex<Queues>,
    files: Mutex<Vec<Weak<Handle>>>,
    /// Calls on helper threads that the exit waits for.
    aside: Mutex<usize>,
    none_aside: Condvar,
}

#[derive(Default)]
struct Queues {
    all: Vec<Arc<ThreadQueue>>,
    /// Those of threads that have ended.
    free: Vec<Arc<ThreadQueue>>,
}

static PROCESS: AtomicPtr<ProcessEngine> = AtomicPtr::new(ptr::null_mut());
/// Of a forked child: that of the process it was forked from.
static PARENT: AtomicPtr<ProcessEngine> = AtomicPtr::new(ptr::null_mut());

impl ProcessEngine {
    /// Returns that of this process, which is made by the first call.
    ///
    /// # Errors
    /// `OSError`: no descriptors or threads.
    #[inline]
    pub(crate) fn get() -> PyResult<&'static ProcessEngine> {
        match ProcessEngine::known() {
            Some(process) => Ok(process),
            None => ProcessEngine::make(),
        }
    }

    #[inline]
    fn known() -> Option<&'static ProcessEngine> {
        // SAFETY: null, or a process that is never dropped.
        unsafe { PROCESS.load(Acquire).as_ref() }
    }

    #[cold]
    fn make() -> PyResult<&'static ProcessEngine> {
        let mut options = Options::from_env();
        options.complaints.iter().for_each(|line| say(line));
        // What is too much waits here: the engine would refuse it.
        let process = mem::replace(&mut options.config.limits, Limits::NONE);
        let each = mem::replace(&mut options.config.context_limits, Limits::NONE);
        // SAFETY: null, or a process that is never dropped.
        let parent = unsafe { PARENT.load(Acquire).as_ref() };
        let limits = parent.map_or((process.into(), each.into()), |it| it.load.limits());
        let made = Box::into_raw(Box::new(ProcessEngine {
            nowait: start(&options).map_err(|error| Failure::from(error).exception())?,
            load: Load::new(limits),
            user_cache: options.user_cache,
            queues: Mutex::default(),
            files: Mutex::default(),
            aside: Mutex::default(),
            none_aside: Condvar::default(),
        }));
        match PROCESS.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            // SAFETY: just made, and not dropped from now on.
            Ok(_) => Ok(unsafe { &*made }),
            Err(first) => {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: that of the thread that was first, which is not dropped.
                Ok(unsafe { &*first })
            }
        }
    }

    /// Tells whether it is that of this process, not of the one it was forked from.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        ptr::eq(PROCESS.load(Acquire), self)
    }

    /// Returns the name of the cache mode of files that are opened without one.
    pub(crate) fn default_cache(&self) -> &'static str {
        if self.user_cache { "user" } else { "host" }
    }

    /// Returns a queue for a thread: one whose thread has ended, or a new one.
    pub(crate) fn queue(&'static self) -> PyResult<Arc<ThreadQueue>> {
        if let Some(free) = self.queues.lock().free.pop() {
            return Ok(free);
        }
        let made = Arc::new(ThreadQueue::new(self)?);
        self.queues.lock().all.push(made.clone());
        Ok(made)
    }

    /// Takes back the queue of a thread that ends, with what is in flight in it.
    pub(crate) fn give_back(&self, queue: Arc<ThreadQueue>) {
        self.queues.lock().free.push(queue);
    }

    /// Remembers an open file, so that it is written at exit.
    pub(crate) fn opened(&self, file: &Arc<Handle>) {
        let mut files = self.files.lock();
        if files.len() == files.capacity() {
            files.retain(|file| file.strong_count() > 0);
        }
        files.push(Arc::downgrade(file));
    }

    /// Has `work`, which may block, done on a helper thread; the exit waits for it.
    pub(crate) fn run_aside(&'static self, work: impl FnOnce() + Send + 'static) {
        *self.aside.lock() += 1;
        let counted = Counted(self);
        self.nowait.run_aside(move || {
            let counted = counted;
            work();
            drop(counted);
        });
    }

    /// The same, for what the exit does not wait for.
    pub(crate) fn ask_aside(&self, work: impl FnOnce() + Send + 'static) {
        self.nowait.run_aside(work);
    }

    /// Waits for the calls that [`ProcessEngine::run_aside`] has begun.
    ///
    /// # Errors
    /// What a handler of a signal raises meanwhile.
    fn wait_for_calls(&self, py: Python<'_>) -> PyResult<()> {
        let is_over = || {
            let mut aside = self.aside.lock();
            if *aside > 0 {
                self.none_aside.wait_for(&mut aside, LOOK);
            }
            *aside == 0
        };
        while !py.detach(is_over) {
            py.check_signals()?;
        }
        Ok(())
    }
}

/// A call that is counted until it has returned, also by a panic.
struct Counted(&'static ProcessEngine);

impl Drop for Counted {
    fn drop(&mut self) {
        let mut aside = self.0.aside.lock();
        *aside -= 1;
        if *aside == 0 {
            self.0.none_aside.notify_all();
        }
    }
}

/// Says something on the standard error; nothing comes of it where that cannot be written.
fn say(line: &str) {
    stderr::say(&format!("nowait: {line}\n"));
}

/// Starts an engine as the environment asks for it, with another backend where that one does not
/// work.
fn start(options: &Options) -> Result<Nowait, nowait::Error> {
    let config = options.config.clone();
    let asked = config.backend;
    Builder::from_config(config.clone()).build().or_else(|error| {
        if asked == BackendChoice::Auto {
            return Err(error);
        }
        say(&format!("{error}; another backend is used"));
        Builder::from_config(config).backend(BackendChoice::Auto).build()
    })
}

/// In a forked child: forgets the parent's engine, whose threads are not here.
#[pyfunction]
pub(crate) fn after_fork() {
    let parent = PROCESS.swap(ptr::null_mut(), AcqRel);
    if !parent.is_null() {
        PARENT.store(parent, Release);
    }
}

/// Requests and bytes, of the process and of each loop.
type LimitNumbers = (usize, u64, usize, u64);

/// Returns what may be in flight.
#[pyfunction]
pub(crate) fn limits() -> PyResult<LimitNumbers> {
    let (process, each) = ProcessEngine::get()?.load.limits();
    Ok((process.requests, process.bytes, each.requests, each.bytes))
}

/// Says what may be in flight.
#[pyfunction]
pub(crate) fn set_limits(numbers: LimitNumbers) -> PyResult<()> {
    let (requests, bytes, loop_requests, loop_bytes) = numbers;
    let process = ProcessEngine::get()?;
    let each = Amount { requests: loop_requests, bytes: loop_bytes };
    process.load.set_limits((Amount { requests, bytes }, each));
    // What waits may have a place now.
    process.queues.lock().all.iter().for_each(|queue| queue.ring());
    Ok(())
}

/// Returns what of this thread's event loop is in flight, requests and bytes, and how many more
/// wait for their turn.
#[pyfunction]
pub(crate) fn in_flight(py: Python<'_>) -> PyResult<(usize, u64, usize)> {
    ThreadQueue::load(py)
}

/// How long a wait at the exit lasts before it looks for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Waits for everything in flight that changes something, and writes back what open files have
/// cached: for the exit. Ends early if a handler of a signal raises, as for Ctrl-C.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>) -> PyResult<()> {
    let Some(process) = ProcessEngine::known() else { return Ok(()) };
    process.wait_for_calls(py)?;
    let queues = process.queues.lock().all.clone();
    queues.iter().try_for_each(|queue| queue.drain(py))?;
    let files: Vec<_> = process.files.lock().drain(..).collect();
    for file in files.iter().filter_map(Weak::upgrade) {
        process.run_aside(move || drop(file.take()));
    }
    process.wait_for_calls(py)
}

/// Returns the name of the backend in use, why it is, and the default cache mode.
#[pyfunction]
pub(crate) fn backend() -> PyResult<(&'static str, String, &'static str)> {
    let process = ProcessEngine::get()?;
    let name = choice::name(process.nowait.backend());
    Ok((name, process.nowait.backend_reason().to_owned(), process.default_cache()))
}
