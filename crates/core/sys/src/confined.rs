//! Optional system calls of the engine, and those among them that may end the process.
//!
//! A call that a container's filter refuses fails with an errno, and the engine has a fallback. The
//! filter of a program that confines itself often kills instead. `seccomp.rs` finds out for which
//! calls a filter kills; the engine does not make these calls.

use crate::Errno;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Optional system calls of the engine: each has a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Extra {
    /// A private descriptor table for the engine's threads: unshare(2), close_range(2).
    OwnTable = 1,
    /// Reading a thread's credentials and changing them, by setfsuid(2) and its kin.
    Credentials = 2,
    /// io_uring.
    Rings = 4,
    /// Having the kernel check addresses, by two operations of futex(2).
    Memory = 8,
    /// pidfd_getfd(2).
    Fetch = 16,
    /// Native AIO.
    NativeAio = 32,
    /// Reading the attributes of a disk in /sys.
    Devices = 64,
    /// Populating memory, by an operation of madvise(2).
    Populate = 128,
    /// Asking for the pages of a file in memory, and announcing reads: cachestat(2),
    /// posix_fadvise(2).
    Announce = 256,
    /// Counting how often a thread has slept: getrusage(2).
    Sleeps = 512,
    /// Reading the type of a descriptor in /proc: readlinkat(2).
    DescriptorTypes = 1024,
    /// The I/O priority of a thread: ioprio_set(2).
    IoPriority = 2048,
}

pub(crate) const ALL: u32 = 2 * Extra::IoPriority as u32 - 1;

static FORBIDDEN: AtomicU32 = AtomicU32::new(0);
/// Optional calls that the program makes itself, so that its own filters must allow them.
static CALLED: AtomicU32 = AtomicU32::new(0);

/// Records that the program itself makes the calls of `extra`. Must be called before
/// [`look`](crate::seccomp::look).
pub fn is_called(extra: Extra) {
    CALLED.fetch_or(extra as u32, Relaxed);
}

/// Returns `true` if a call of `extra` may end the thread or the process, as far as the library
/// knows.
pub fn forbids(extra: Extra) -> bool {
    FORBIDDEN.load(Relaxed) & extra as u32 != 0
}

/// Fails with `EPERM` if [`forbids`] returns `true`.
pub(crate) fn check(extra: Extra) -> Result<(), Errno> {
    if forbids(extra) { Err(Errno::PERM) } else { Ok(()) }
}

/// Forbids these calls; returns those that were allowed before.
pub(crate) fn forbid(calls: u32) -> u32 {
    calls & !FORBIDDEN.fetch_or(calls, Relaxed)
}

pub(crate) fn forbid_all() {
    forbid(ALL & !CALLED.load(Relaxed));
}

pub(crate) fn allow(calls: u32) {
    FORBIDDEN.fetch_and(!calls, Relaxed);
}
