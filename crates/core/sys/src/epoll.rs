//! Readiness of many descriptors at once.

use crate::{Errno, Fd, sys, time::Deadline};

/// One descriptor that is ready, laid out as the kernel's `struct epoll_event`.
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    /// Its events, as poll(2) names them.
    pub events: u32,
    /// Given when it was added.
    pub data: u64,
}

/// A set of descriptors to wait for. Source: epoll(7).
#[derive(Debug)]
pub struct Epoll(Fd);

/// Reports a descriptor once, then not before [`Epoll::rearm`].
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

impl Epoll {
    /// Creates an empty set, close-on-exec, at a high number (see [`Fd::moved_high`]).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`. Source: epoll_create1(2).
    pub fn new() -> Result<Epoll, Errno> {
        // SAFETY: no memory is involved.
        let fd = unsafe { sys!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) }?;
        Ok(Epoll(Fd::from_raw(fd as i32).moved_high()))
    }

    /// Adds `fd`, reported as often as it is ready for `events`.
    ///
    /// # Errors
    /// Those of [`Epoll::add_once`].
    pub fn add(&self, fd: i32, events: u16, data: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, u32::from(events), data)
    }

    /// Adds `fd`, to be reported once when it is ready for one of `events`, in error or hung up.
    ///
    /// # Errors
    /// `EPERM`: such files are always ready. `EEXIST`, `EBADF`, `ENOMEM`, `ENOSPC`.
    /// Source: epoll_ctl(2).
    pub fn add_once(&self, fd: i32, events: u16, data: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, u32::from(events) | ONESHOT, data)
    }

    /// Waits once more for `fd`, which is in the set.
    ///
    /// # Errors
    /// `ENOENT`: it is not. `EBADF`, `ENOMEM`. Source: epoll_ctl(2).
    pub fn rearm(&self, fd: i32, events: u16, data: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, fd, u32::from(events) | ONESHOT, data)
    }

    /// Takes `fd` out, while it is still open.
    pub fn remove(&self, fd: i32) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn control(&self, operation: i32, fd: i32, events: u32, data: u64) -> Result<(), Errno> {
        let event = Ready { events, data };
        // SAFETY: the event is a live local, laid out as the kernel's.
        unsafe {
            sys!(libc::SYS_epoll_ctl, self.0.raw(), operation, fd, core::ptr::from_ref(&event))
        }
        .map(drop)
    }

    /// Waits until some are ready or the deadline; returns those.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran. Source: epoll_pwait(2).
    pub fn wait<'a>(
        &self,
        ready: &'a mut [Ready],
        deadline: Deadline,
    ) -> Result<&'a [Ready], Errno> {
        let milliseconds = deadline.remaining().map_or(-1, |left| {
            let whole = left.tv_sec.saturating_mul(1000) + (left.tv_nsec + 999_999) / 1_000_000;
            i32::try_from(whole).unwrap_or(i32::MAX)
        });
        // SAFETY: the events are a live slice of the kernel's layout; there is no signal mask.
        let count = unsafe {
            let (fd, events) = (self.0.raw(), ready.as_mut_ptr());
            sys!(libc::SYS_epoll_pwait, fd, events, ready.len(), milliseconds, 0, 8)
        }?;
        Ok(&ready[..count])
    }
}
