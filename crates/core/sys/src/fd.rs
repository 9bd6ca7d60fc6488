//! Owned descriptors, and numbers for them that the application hardly uses.

use crate::{Errno, fdtable, sys};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// An owned descriptor. Dropping the `Fd` closes the descriptor by the system call itself: an
/// interposed `close` does not see it.
#[derive(Debug)]
pub struct Fd(i32);

impl Fd {
    /// Takes ownership of `fd`.
    pub fn from_raw(fd: i32) -> Fd {
        Fd(fd)
    }

    /// Returns the number, still owned by `self`.
    #[inline]
    pub fn raw(&self) -> i32 {
        self.0
    }

    /// Gives up ownership.
    pub fn into_raw(self) -> i32 {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }

    /// Moves the descriptor to a high number, so that the application's own `open` returns the same
    /// small numbers as without the library. The descriptor keeps its number if no high number is
    /// free.
    #[must_use]
    pub fn moved_high(self) -> Fd {
        duplicate_high(self.0).unwrap_or_else(|_| {
            is_ours(self.0);
            self
        })
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Closes `fd`. Ignores an error: no caller can use it (close(2), "Dealing with error returns").
pub fn close(fd: i32) {
    // SAFETY: no memory is involved; closing a descriptor we own is harmless.
    let _ = unsafe { sys!(libc::SYS_close, fd) };
}

/// Closes all descriptors from `first` to `last`. Source: close_range(2).
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    // SAFETY: no memory is involved; the application asked for it.
    unsafe { sys!(libc::SYS_close_range, first, last, flags) }.map(drop)
}

/// Duplicates `fd` to the lowest free number at or above `floor`, close-on-exec.
///
/// # Errors
/// `EBADF`: not open. `EMFILE`: no free number. `EINVAL`: `floor` is not below RLIMIT_NOFILE.
/// Source: fcntl(2), F_DUPFD_CLOEXEC.
pub fn duplicate(fd: i32, floor: i32) -> Result<Fd, Errno> {
    // SAFETY: fcntl with F_DUPFD_CLOEXEC takes no pointer.
    unsafe { sys!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, floor) }.map(|fd| Fd(fd as i32))
}

/// The largest value of [`floor`], where the library's descriptors begin in the program's table.
/// Higher numbers would make the kernel's table longer, and fork(2) copies it.
const FLOOR_MAX: u64 = 4096;

/// The lowest number that a descriptor of the library has had in the program's table: the limit may
/// change afterwards.
static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);

pub(crate) fn is_ours(fd: i32) {
    if !fdtable::is_private() {
        LOWEST.fetch_min(fd, Relaxed);
    }
}

/// Returns `true` if a descriptor with this number may belong to the library.
pub fn may_be_ours(fd: i32) -> bool {
    fd >= LOWEST.load(Relaxed)
}

/// Duplicates `fd` to a number for the library's descriptors: in the top quarter of the soft limit,
/// or from `FLOOR_MAX` on if that is lower. Fails as [`duplicate`] does.
pub fn duplicate_high(fd: i32) -> Result<Fd, Errno> {
    let high = duplicate(fd, floor())?;
    is_ours(high.raw());
    Ok(high)
}

/// Makes the kernel grow the descriptor table for the library's numbers now. The growth takes
/// microseconds in a process with one thread, and 8 to 16 ms where other threads share the table.
#[unsafe(link_section = ".text.startup")]
pub fn make_room() {
    const STANDARD: core::ops::Range<i32> = 0..3;
    let duplicate = |fd| duplicate(fd, floor()).ok();
    drop(STANDARD.into_iter().find_map(duplicate));
}

fn floor() -> i32 {
    let soft = nofile_limit();
    (soft - soft / 4).min(FLOOR_MAX) as i32
}

/// Returns the soft limit of open descriptors (RLIMIT_NOFILE).
pub fn nofile_limit() -> u64 {
    rlimit(libc::RLIMIT_NOFILE).0
}

/// Returns the soft limit of the main thread's stack (RLIMIT_STACK).
pub fn stack_limit() -> u64 {
    rlimit(libc::RLIMIT_STACK).0
}

/// Raises the soft limit of open descriptors to the hard one, and returns the resulting soft limit.
pub fn raise_nofile_limit() -> u64 {
    let (soft, hard) = rlimit(libc::RLIMIT_NOFILE);
    let limit = libc::rlimit { rlim_cur: hard, rlim_max: hard };
    let pointer = core::ptr::from_ref(&limit);
    // SAFETY: `limit` is a live local of the type the call reads.
    match unsafe { sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, pointer, 0) } {
        Ok(_) => hard,
        Err(_) => soft,
    }
}

/// Takes over a descriptor that the parent process left open for this one, and makes it
/// close-on-exec. Returns `None` if it is not open. Source: sd_listen_fds(3).
///
/// # Safety
/// Nothing else in the process uses this number.
pub unsafe fn inherited(fd: i32) -> Option<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: F_SETFD takes no pointer.
    unsafe { sys!(libc::SYS_fcntl, fd, libc::F_SETFD, libc::FD_CLOEXEC) }.ok()?;
    // SAFETY: it is open, and no other code uses it, as promised above.
    Some(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

/// The type of a resource's number (RLIMIT_*), as in the C library's header.
#[cfg(target_env = "gnu")]
pub type Resource = libc::__rlimit_resource_t;
/// The type of a resource's number (RLIMIT_*), as in the C library's header.
#[cfg(not(target_env = "gnu"))]
pub type Resource = core::ffi::c_int;

/// Returns the soft and hard limit of `resource`; `u64::MAX` stands for no limit.
pub fn rlimit(resource: Resource) -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live local of the type the call fills.
    let _ = unsafe { sys!(libc::SYS_prlimit64, 0, resource, 0, core::ptr::from_mut(&mut limit)) };
    (limit.rlim_cur, limit.rlim_max)
}
