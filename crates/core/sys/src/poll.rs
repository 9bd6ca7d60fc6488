//! Waiting on descriptors.

use crate::{Errno, sys, time::Deadline};

/// Waits until `fd` is ready for `events` or the deadline, under `sigmask`. Returns the ready
/// events, zero at the deadline. Source: ppoll(2).
/// # Errors
/// `EINTR`: a signal handler ran.
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
    loop {
        match ppoll(fd, events, Deadline::NOW, None) {
            Err(Errno::INTR) => {} // also without waiting
            ready => return ready,
        }
    }
}

/// Returns `true` if the peer of a socket has closed it or will send nothing more. Also returns
/// `true` if `fd` has an error or is not open.
pub fn has_hung_up(fd: i32) -> bool {
    ready(fd, libc::POLLRDHUP) != Ok(0)
}

/// Returns `true` if a write to `fd` (a socket or eventfd) does not wait now: it has room, or the
/// write fails.
pub fn has_room(fd: i32) -> bool {
    ready(fd, libc::POLLOUT) != Ok(0)
}
