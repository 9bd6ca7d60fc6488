//! Waiting on descriptors.

use crate::{Errno, sys, time::Deadline};

/// Waits until `fd` is ready for `events` or the deadline, with `sigmask` in force meanwhile.
///
/// Returns the ready events, zero at the deadline.
/// # Errors
/// `EINTR`: a signal handler ran.
/// Source: ppoll(2).
pub fn ppoll(
    fd: i32,
    events: i16,
    deadline: Deadline,
    sigmask: Option<&u64>,
) -> Result<i16, Errno> {
    let mut pollfd = libc::pollfd { fd, events, revents: 0 };
    let left = deadline.remaining();
    let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let mask = sigmask.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: all pointers are to live locals or null; the kernel's sigset_t is 8 bytes.
    unsafe { sys!(libc::SYS_ppoll, core::ptr::from_mut(&mut pollfd), 1, left, mask, 8) }?;
    Ok(pollfd.revents)
}

/// Returns the events for which `fd` is ready now.
pub fn ready(fd: i32, events: i16) -> Result<i16, Errno> {
    ppoll(fd, events, Deadline::NOW, None)
}

/// One descriptor to watch, laid out as the kernel's `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PollFd {
    /// Which descriptor.
    pub fd: i32,
    /// The events waited for; errors and hang-ups are always among them.
    pub events: u16,
    /// The events found, or `POLLNVAL` (0x20) when `fd` is not open.
    pub ready: u16,
}

/// Waits until one of `fds` is ready or the deadline; returns how many are. Source: ppoll(2).
///
/// # Errors
/// `EINTR`: a signal handler ran. `ENOMEM`. `EINVAL`: more descriptors than RLIMIT_NOFILE.
pub fn poll_many(fds: &mut [PollFd], deadline: Deadline) -> Result<usize, Errno> {
    let left = deadline.remaining();
    let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the descriptors are a live slice, the timespec a live local or null.
    unsafe { sys!(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), left, 0, 8) }
}
