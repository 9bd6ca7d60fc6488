//! The extension module of the Python package: what of a file and of its requests must be quick,
//! or must outlive what Python does. The rest of the package is Python, in `python/nowait`.
//!
//! ```text
//!  python/nowait      open, File: modes, streams of bytes and text, with
//!                       │
//!  file.rs            RawFile: positional requests on an open file
//!                       │
//!  thread_queue.rs    the queue of a thread: submits, and reaps in its event loop
//!                       │                              │ operation.rs
//!                       │                              what Python awaits
//!  requests.rs        those in flight, and in line for a place
//!                       │ limits.rs                    │ transfer.rs, memory.rs
//!                     how many places there are       what the engine may touch
//!                       │
//!  event_loop.rs      whether that is a loop of asyncio or a run of trio
//!                       │
//!  lent.rs            cached pages that Python sees in place
//!  lines.rs           what a stream has read ahead, line by line
//!  ready.rs           what is awaited for a line
//!  whole.rs           whole files by path, on helper threads
//!  small.rs           or, if one is small and cached, inside the call
//!  process.rs         one engine for the process, and its end
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

mod error;
mod event_loop;
mod file;
mod lent;
mod limits;
mod lines;
mod memory;
mod operation;
mod process;
mod ready;
mod requests;
mod small;
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
    use super::whole::{copy_whole, read_whole, write_whole};
}
