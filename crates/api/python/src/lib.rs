//! The extension module of the Python package: the parts of files and requests that must be fast,
//! or must outlive Python's objects. The rest of the package is Python, in `python/nowait`.
//!
//! Each file imports only files below it or on the same line:
//!
//! ```text
//!  python/nowait      open, File: modes, streams of bytes and text
//!                       │
//!  file.rs            RawFile: positional requests on an open file
//!  whole.rs           whole files by path, on helper threads
//!  small.rs           or inside the call, if the file is small and cached
//!  lines.rs           what a stream has read ahead, line by line; ready.rs: one line, awaited
//!                       │
//!  submit.rs          submits requests and calls; returns their operations
//!  process.rs         what the process has: an engine, queues of threads, open files; the exit
//!  reaper.rs          passes results to operations, in the event loop or by a wait
//!  operation.rs       what Python awaits; batch.rs: several requests that end as one
//!  thread_queue.rs    the queue of a thread, and the descriptors that its loop watches
//!  requests.rs        requests in flight, and in line for a place
//!                       │
//!  transfer.rs, memory.rs    what the engine may touch
//!  handle.rs, lent.rs        open files, and cached pages that Python sees in place
//!  engine.rs, limits.rs      the engine, and how many places there are
//!  event_loop.rs, error.rs   a loop of asyncio or a run of trio; failures as exceptions
//! ```
//!
//! **An `await` of a request that is over at once does not suspend.** The call submits the request,
//! not the `await`.
//!
//! **A call makes the `Operation` before it submits the request.** So the thread that reaps the
//! request finds the `Operation`.
//!
//! **Memory stays until the engine is done with it.** The queue owns the buffer, even if the
//! awaitable is cancelled or forgotten, or its loop closed. No queue is ever dropped: when a thread
//! ends, its queue is free for another thread.
//!
//! **No Python code runs under a lock**: Python code could switch to a thread that waits for the
//! lock.

mod batch;
mod engine;
mod error;
mod event_loop;
mod file;
mod handle;
mod lent;
mod limits;
mod lines;
mod memory;
mod operation;
mod process;
mod ready;
mod reaper;
mod requests;
mod small;
mod submit;
mod thread_queue;
mod transfer;
mod whole;

use pyo3::prelude::*;

/// The module `nowait._nowait`.
#[pymodule(gil_used = false)]
mod _nowait {
    #[pymodule_export]
    use super::file::RawFile;
    #[pymodule_export]
    use super::lent::LentPart;
    #[pymodule_export]
    use super::lines::{LineIterator, Lines};
    #[pymodule_export]
    use super::operation::{Operation, turn};
    #[pymodule_export]
    use super::process::{after_fork, backend, in_flight, limits, set_limits, shut_down};
    #[pymodule_export]
    use super::reaper::{adopt, finish};
    #[pymodule_export]
    use super::whole::{copy_whole, read_whole, write_whole};
}
