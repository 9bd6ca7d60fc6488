//! POSIX AIO (`aio_read` and similar calls) on the engine, for the preload library.
//!
//! ```text
//! posix.c        symbols, cancellation points, the threads of SIGEV_THREAD
//!      │ extern "C"
//! [`exports`]    the functions that C calls
//! [`submit`]     aio_read, aio_write, aio_fsync; [`list`]: lio_listio
//! [`posix`]      the one context of POSIX AIO, and its requests in flight
//!      │ every end, on the thread that ended the request
//! [`aiocb`]      the outcome in the application's block, and the threads that sleep for it
//! [`notice`]     signals; functions for threads in [`notifiers`]
//! ```
//!
//! The functions that a signal handler may call (aio_error, aio_return, aio_suspend) take no lock
//! and allocate no memory: they read the words of the blocks, and sleep on a word of their own
//! ([`nowait_engine::outcome`]).

pub mod aiocb;
pub mod cancel;
pub mod exports;
pub mod list;
pub mod notice;
pub mod notifiers;
pub mod pending_notices;
pub mod posix;
pub mod submit;

pub use posix::Posix;
