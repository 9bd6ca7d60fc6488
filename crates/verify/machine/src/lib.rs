//! A simulated machine: real code of many threads, run one thread at a time, by a seed.
//!
//! ```text
//! Machine    a run: main thread, clock, kernel, and what went wrong
//!   interpose  where code meets the kernel: the C library's functions, and sys::raw
//!     sockets     those by which std reads, writes and pairs sockets
//!   faults     devices that fail, and power cuts, as a program asks for them
//!   process    a run that is a process of its own
//!   steps      what a program does, in parts that a run may leave out
//!   shrink     a run of few steps, in place of one that has failed
//!   signals    which thread gets a signal, and where
//!   schedule   which thread runs, and how far the time is
//!   cores      a processor for each thread, and what it costs to share memory
//!     lines       which processors have a line
//!   kernel     the system calls, as far as the engine needs them
//!     descriptor  tables of descriptors; what is sent from one to another
//!     file        files, their inode locks, what is cached of them
//!     device      transfers that take time, come short, fail, and meet each other
//!     aio         native AIO
//!     uring       io_uring
//!     event       eventfds, polls
//!     futex       sleeping on a word
//!     socket      streams of bytes between two ends
//! ```
//!
//! Threads are real ones, with their own stacks and thread-local values, but only the chosen one
//! runs; the machine chooses another whenever a thread makes a system call. So no code above the
//! system calls is replaced, not even locks: those of std sleep by futex(2). The time stands still
//! while code runs. A call advances it by its cost, and if all threads sleep, it advances to the
//! next event. If there is no event, the program hangs, and the run fails.
//!
//! Only in builds with `--cfg simulated` (`cargo x ci simulated`).
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
