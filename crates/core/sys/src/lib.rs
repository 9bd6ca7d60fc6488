//! System calls of the engine and the servers, and the `unsafe` code they need.
//!
//! | module | contents |
//! |---|---|
//! | `raw`, `raw_miri` | the system call instruction, and its replacement under Miri |
//! | `errno` | names for error numbers |
//! | `fd`, `fdtable` | owned descriptors; the private descriptor table of the library's threads |
//! | `file`, `named`, `sparse`, `lock` | read, write, sync, stat; find by name; holes; byte locks |
//! | `announce` | reads that the kernel begins before a call waits for them |
//! | `pipe`, `socket`, `stderr` | calls on streams |
//! | `aio`, `uring` | the kernel's native AIO; one io_uring |
//! | `eventfd`, `futex`, `poll`, `epoll`, `signalfd` | how threads wait |
//! | `signal`, `inside` | signals that announce completions; delaying the program's handlers |
//! | `cred` | a thread's credentials |
//! | `confined`, `seccomp` | optional calls of the engine; seccomp filters of the program |
//! | `memory`, `aligned`, `allocator` | mappings, address checks; direct I/O buffers; the heap |
//! | `thread`, `own_thread`, `fork` | signals and ids; threads of the library; forked children |
//! | `primitives`, `mutex` | atomics and locks that loom models or simulations replace |
//! | `environment`, `inspect`, `time` | variables, abilities of the system, clocks |
//! | `lazy` | values that are made at their first use |
//! | `fuse`, `ublk` | FUSE requests, unmounting; block devices that a process serves |
//! | `mistake` | deliberate bugs that simulations must find |
//!
//! Most system calls are issued by the instruction itself, not through the C library: a preloaded
//! library interposes some of the C library's wrappers, many are cancellation points, and callers
//! of libaio expect `errno` to stay as it was.

pub mod aio;
pub mod aligned;
pub mod allocator;
pub mod announce;
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
