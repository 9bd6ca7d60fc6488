//! Waiting on many descriptors at once.

use crate::{Errno, Fd, sys, time::Deadline};

/// Ready to be read, or closed by the other side.
pub const IN: u32 = libc::EPOLLIN as u32;
/// Ready to be written.
pub const OUT: u32 = libc::EPOLLOUT as u32;
/// A modifier of events: the descriptor is reported once, then not before the next
/// [`Epoll::change`].
pub const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// A modifier of events: the descriptor is reported when its state changes, not as long as it is
/// ready.
pub const EDGE: u32 = libc::EPOLLET as u32;

/// A descriptor of the set that is ready, laid out as the kernel's `struct epoll_event`.
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The ready events: a subset of the requested ones, and EPOLLERR and EPOLLHUP, which are
    /// always reported.
    pub events: u32,
    /// The token that was given with the descriptor.
    pub token: u64,
}

/// A set of descriptors. Each descriptor is reported as long as it is ready, unless it was added
/// with [`ONCE`] or [`EDGE`].
///
/// Changes of the set take effect on a wait of another thread, too. Source: epoll(7).
#[derive(Debug)]
pub struct Epoll(Fd);

impl Epoll {
    /// Makes an empty set, close-on-exec.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptors left. `ENOMEM`. Source: epoll_create1(2).
    pub fn new() -> Result<Epoll, Errno> {
        // SAFETY: no memory is involved.
        let fd = unsafe { sys!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) }?;
        Ok(Epoll(Fd::from_raw(fd as i32)))
    }

    /// Moves the descriptor of the set to a high number, see [`Fd::moved_high`].
    #[must_use]
    pub fn moved_high(self) -> Epoll {
        Epoll(self.0.moved_high())
    }

    /// Adds `fd` with `token`, which the wait returns.
    ///
    /// # Errors
    /// `EEXIST`: it is in the set. `EPERM`: the file cannot be watched because it is always ready.
    /// `EBADF`, `ENOMEM`, `ENOSPC`. Source: epoll_ctl(2).
    pub fn add(&self, fd: i32, events: u32, token: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    /// Changes the requested events and the token. A descriptor that was reported [`ONCE`] is
    /// watched again.
    ///
    /// # Errors
    /// `ENOENT`: it is not in the set. `EBADF`, `ENOMEM`. Source: epoll_ctl(2).
    pub fn change(&self, fd: i32, events: u32, token: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    /// Removes `fd`. A descriptor leaves the set by itself when its open file is closed everywhere.
    /// If another descriptor refers to the open file, `fd` must be removed before it is closed.
    ///
    /// # Errors
    /// `ENOENT`: it is not in the set. `EBADF`. Source: epoll_ctl(2).
    pub fn remove(&self, fd: i32) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, what: i32, fd: i32, events: u32, token: u64) -> Result<(), Errno> {
        let event = Ready { events, token };
        // SAFETY: the event is a live local, laid out as the kernel's, which only reads it.
        unsafe { sys!(libc::SYS_epoll_ctl, self.0.raw(), what, fd, core::ptr::from_ref(&event)) }
            .map(drop)
    }

    /// Blocks until a descriptor is ready, the deadline, or a signal. Replaces the contents of
    /// `ready` by the ready descriptors, up to its capacity: none after the deadline or a signal.
    /// The next wait reports the others. Source: epoll_pwait(2).
    ///
    /// # Panics
    /// `ready` has no capacity.
    pub fn wait(&self, ready: &mut Vec<Ready>, deadline: Deadline) {
        ready.clear();
        let (room, count) = (ready.as_mut_ptr(), ready.capacity());
        assert!(count > 0, "room for one that is ready");
        let timeout = match deadline.remaining_ns() {
            None => -1,
            // Rounded up, so that a deadline has passed when its wait ends.
            Some(ns) => i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX),
        };
        // SAFETY: the capacity is memory of the vector, of the kernel's layout; there is no signal
        // mask.
        let waited = unsafe {
            sys!(libc::SYS_epoll_pwait, self.0.raw(), room, count, timeout as isize, 0, 8)
        };
        // EINTR: a signal came, or io_uring has run work on this thread; the caller waits again.
        // SAFETY: the kernel has written so many.
        unsafe { ready.set_len(waited.unwrap_or(0)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn what_is_ready_is_told_by_its_token() {
        let (epoll, counter) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let mut ready = Vec::with_capacity(4);
        epoll.add(counter.raw(), IN, 17).unwrap();
        assert_eq!(epoll.add(counter.raw(), IN, 17), Err(Errno::EXIST));
        epoll.wait(&mut ready, Deadline::NOW);
        assert_eq!(ready, []);
        counter.signal();
        epoll.wait(&mut ready, Deadline::NEVER);
        assert_eq!(ready, [Ready { token: 17, events: IN }]);
        epoll.change(counter.raw(), OUT, 18).unwrap();
        epoll.wait(&mut ready, Deadline::NEVER);
        assert_eq!(ready, [Ready { token: 18, events: OUT }]);
        epoll.remove(counter.raw()).unwrap();
        epoll.wait(&mut ready, Deadline::after_ns(1));
        assert_eq!(ready, []);
    }

    #[test]
    fn what_is_asked_for_once_is_told_once_until_it_is_asked_for_again() {
        let (epoll, counter) = (Epoll::new().unwrap().moved_high(), EventFd::new().unwrap());
        let mut ready = Vec::with_capacity(4);
        epoll.add(counter.raw(), IN | ONCE, 17).unwrap();
        counter.signal();
        epoll.wait(&mut ready, Deadline::NEVER);
        assert_eq!(ready, [Ready { token: 17, events: IN }]);
        epoll.wait(&mut ready, Deadline::NOW);
        assert_eq!(ready, []);
        epoll.change(counter.raw(), IN | ONCE, 18).unwrap();
        epoll.wait(&mut ready, Deadline::NEVER);
        assert_eq!(ready, [Ready { token: 18, events: IN }]);
    }

    #[test]
    fn what_is_asked_for_by_its_changes_is_told_again_when_it_changes() {
        let (epoll, counter) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let mut ready = Vec::with_capacity(4);
        epoll.add(counter.raw(), IN | EDGE, 17).unwrap();
        for _ in 0..2 {
            counter.signal();
            epoll.wait(&mut ready, Deadline::NEVER);
            assert_eq!(ready, [Ready { token: 17, events: IN }]);
            epoll.wait(&mut ready, Deadline::NOW);
            assert_eq!(ready, []);
        }
    }

    #[test]
    fn more_that_are_ready_than_there_is_room_for_are_told_by_the_next_wait() {
        let (epoll, counters) = (Epoll::new().unwrap(), [(); 3].map(|()| EventFd::new().unwrap()));
        let (mut ready, mut told) = (Vec::with_capacity(1), Vec::new());
        for (token, counter) in counters.iter().enumerate() {
            epoll.add(counter.raw(), IN | ONCE, token as u64).unwrap();
            counter.signal();
        }
        for _ in 0..3 {
            epoll.wait(&mut ready, Deadline::NEVER);
            told.extend(ready.iter().map(|it| it.token));
        }
        told.sort_unstable();
        assert_eq!(told, [0, 1, 2]);
    }
}
