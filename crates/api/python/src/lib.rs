//! The extension module of the Python package: what of a file and of its requests must be quick,
//! or must outlive what Python does. The rest of the package is Python, in `python/nowait`.
//!
//! Each file imports only files below it:
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
//!  reaper.rs          brings ends to operations, in the event loop or by a wait
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
//! **What is over at once never suspends.** A request is submitted by the call, not by the
//! `await`: if it ended within, the `Operation` returned is done, and the `await` on
//! it goes on without the event loop.
//!
//! **An `Operation` is made before its request is submitted.** The thread that finds the end of the
//! request finds the `Operation` too. It gets an event loop when it has to wait for one.
//!
//! **Memory stays until the engine is done with it.** The queue owns the buffer, whatever becomes
//! of the awaitable: cancelled, forgotten, its loop closed. Queues are never dropped: that of a
//! thread that ended goes to the next one.
//!
//! **No Python code runs under a lock**: it could switch to a thread that wants the lock.

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
