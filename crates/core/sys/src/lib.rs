//! The only system calls of nowait, and the `unsafe` code they need.
//!
//! ```text
//! raw      the system call instruction: no errno, no cancellation point, not interposable;
//!          raw_miri: what stands for it under Miri
//! errno    names for error numbers            fd       owned descriptors, kept out of the way
//! file     read, write, sync, stat            aio      the kernel's native AIO and its structs
//! uring    one io_uring                       eventfd, futex, poll: how threads wait
//! cred     whose rights a thread acts with    fdtable  a private descriptor table for our threads
//! memory   shared mappings, safe probes       aligned  owned memory for direct I/O
//! thread   signals, identities, priority    own_thread  threads that the program does not know
//! signal   what tells a process of a completion    inside   when handlers of the program run
//! allocator   memory that has nothing to do with malloc
//! timer, tty, pipe, socket: files without offsets
//! primitives  atomics, a mutex and a futex that models replace by loom's
//! inspect  what this system allows        lazy     what is made at first use, unless that fails
//! epoll, signalfd: waiting on many descriptors, for signals too
//! named    a file found by its name without waiting
//! sparse   holes and data of a file         lock     locks on bytes of an open file
//! fuse     mounting what this process answers for
//! ublk     block devices that this process answers for
//! mistake  what simulations must find          mutex    locks that simulations replace
//! ```
//!
//! System calls are issued by the instruction itself, not through the C library: a preloaded
//! library interposes some of the C library's wrappers, the wrappers are cancellation points,
//! and callers of libaio expect `errno` to stay as it was.

pub mod aio;
pub mod aligned;
pub mod allocator;
pub mod confined;
pub mod cred;
pub mod environment;
pub mod epoll;
pub mod errno;
pub mod eventfd;
pub mod fd;
pub mod fdtable;
pub mod file;
pub mod fork;
pub mod fuse;
pub mod futex;
pub mod inside;
pub mod inspect;
pub mod lazy;
pub mod lock;
pub mod memory;
pub mod mistake;
pub mod mutex;
pub mod named;
pub mod own_thread;
pub mod pipe;
pub mod poll;
pub mod primitives;
pub mod raw;
#[cfg(miri)]
mod raw_miri;
pub mod signal;
pub mod signalfd;
pub mod socket;
pub mod sparse;
pub mod stderr;
pub mod thread;
pub mod time;
pub mod ublk;
pub mod uring;

pub use errno::Errno;
pub use fd::Fd;
