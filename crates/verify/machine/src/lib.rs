//! A simulated machine: real code of many threads, run one thread at a time, by a seed.
//!
//! ```text
//! Machine    a run: main thread, clock, kernel, and the failure if any
//!   interpose  the functions that make system calls: the C library's, and sys::raw
//!     sockets     functions by which std reads, writes and pairs sockets
//!   faults     devices that fail, and power cuts, as a program asks for them
//!   process    a run that is a process of its own
//!   steps      a program's actions, which a run may leave out one by one
//!   shrink     finds a run of few steps that fails, from one that has failed
//!   signals    the choice of the thread that gets a signal, and of the moment
//!   schedule   the choice of the thread that runs, and the time
//!   cores      a processor for each thread, and the cost of shared memory
//!     lines       the processors that have a cache line
//!   kernel     the system calls, as far as the engine needs them
//!     descriptor  tables of descriptors, and descriptors sent from one to another
//!     file        files, their inode locks, their cached pages
//!     device      transfers that take time, are short, fail, and overlap each other
//!     aio         native AIO
//!     uring       io_uring
//!     event       eventfds, polls
//!     futex       sleeping on a word
//!     socket      streams of bytes between two ends
//! ```
//!
//! Threads are real ones, with their own stacks and thread-local values, but only the chosen one
//! runs. The machine may choose another thread at a system call, and before the engine's code takes
//! a lock. Std's own locks are in use, and sleep by the simulated futex(2).
//!
//! Time stands still while code runs, except with `cores`. A system call advances it by the call's
//! cost; if all threads sleep, it advances to the next event. If no event is due within an hour,
//! the program hangs, and the run fails.
//!
//! The crate is empty except in builds with `--cfg simulated` (`cargo x ci simulated`).
#![cfg(simulated)]

pub mod cores;
mod faults;
mod interpose;
mod kernel;
pub mod process;
mod schedule;
mod shrink;
mod signals;
mod steps;

pub use faults::{
    come_whole, give_up_with_threads, know_no_nowait, left_after_cut, longest_ns, mark_pages,
    opens_of, refuse_late, say_tags, set_faults, start_no_read, throttle, transfers_awaited,
    wait_on_no_words, zero_slowly,
};
pub use interpose::note;
pub use nowait_sim::Failure;
pub use schedule::{Machine, Report};
pub use shrink::{Smallest, explain};
pub use signals::take_signals;
pub use steps::{Step, step};
