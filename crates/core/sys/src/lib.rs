//! System calls of the engine and the servers, and the `unsafe` code they need.
//!
//! Most system calls are issued by the instruction itself, not through the C library: a preloaded
//! library interposes some of the C library's wrappers, many are cancellation points, and callers
//! of libaio expect `errno` to stay as it was.

pub mod aio;
pub mod aligned;
pub mod allocator;
pub mod announce;
pub mod broken_pipe;
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
pub mod seccomp;
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
