//! Waiting on many descriptors at once.

use crate::{Errno, Fd, sys, time::Deadline};

/// Ready to be read, or closed by the other side.
pub const IN: u32 = libc::EPOLLIN as u32;
/// Ready to be written.
pub const OUT: u32 = libc::EPOLLOUT as u32;
/// The other side has gone.
pub const HANG_UP: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// A set of descriptors, watched level-triggered. Source: epoll(7).
#[derive(Debug)]
pub struct Epoll(Fd);

/// A descriptor of the set that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// As it was given when the descriptor was added.
    pub token: u64,
    /// [`IN`], [`OUT`], [`HANG_UP`].
    pub events: u32,
}

/// What one wait returns, kept for its memory.
pub struct ReadyList {
    events: Vec<libc::epoll_event>,
    len: usize,
}

impl core::fmt::Debug for ReadyList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl ReadyList {
    /// Makes room for `count` descriptors; the others come at the next wait.
    pub fn new(count: usize) -> ReadyList {
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; count.max(1)];
        ReadyList { events, len: 0 }
    }

    /// Forgets what the last wait returned.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns how many are ready.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether none is ready.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns one of those that are ready.
    pub fn get(&self, index: usize) -> Option<Ready> {
        self.iter().nth(index)
    }

    /// Returns those that are ready.
    pub fn iter(&self) -> impl Iterator<Item = Ready> + '_ {
        self.events[..self.len].iter().map(|event| Ready { token: event.u64, events: event.events })
    }
}

impl Epoll {
    /// Makes an empty set.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptors left. `ENOMEM`.
    pub fn new() -> Result<Epoll, Errno> {
        // SAFETY: no memory is involved.
        let fd = unsafe { sys!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) }?;
        Ok(Epoll(Fd::from_raw(fd as i32)))
    }

    /// Adds `fd`, to be known as `token`.
    ///
    /// # Errors
    /// `EEXIST`: it is in the set. `EPERM`: it cannot be watched. `ENOSPC`, `ENOMEM`.
    pub fn add(&self, fd: i32, events: u32, token: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    /// Changes the events waited for.
    ///
    /// # Errors
    /// `ENOENT`: it is not in the set.
    pub fn change(&self, fd: i32, events: u32, token: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    /// Takes `fd` out. A descriptor whose open file is closed leaves by itself.
    ///
    /// # Errors
    /// `ENOENT`: it is not in the set.
    pub fn remove(&self, fd: i32) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, what: i32, fd: i32, events: u32, token: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: the event is a live local of the type the call reads.
        unsafe {
            sys!(libc::SYS_epoll_ctl, self.0.raw(), what, fd, core::ptr::from_mut(&mut event))
        }
        .map(drop)
    }

    /// Waits until a descriptor is ready, the deadline, or a signal; `list` then has those that
    /// are ready. Source: epoll_pwait(2).
    pub fn wait(&self, list: &mut ReadyList, deadline: Deadline) {
        let timeout = match deadline.remaining_ns() {
            None => -1,
            // Rounded up, so that a deadline has passed when its wait ends.
            Some(ns) => i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX),
        };
        let (events, count) = (list.events.as_mut_ptr(), list.events.len());
        // SAFETY: the events are a live vector of that many; no signal mask is given.
        let waited = unsafe {
            sys!(libc::SYS_epoll_pwait, self.0.raw(), events, count, timeout as isize, 0, 8)
        };
        // EINTR: a signal, or work of an io_uring on this thread; the waiting thread looks again.
        list.len = waited.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn what_is_ready_is_told_by_its_token() {
        let (epoll, counter) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let mut list = ReadyList::new(4);
        epoll.add(counter.raw(), IN, 17).unwrap();
        assert_eq!(epoll.add(counter.raw(), IN, 17), Err(Errno::EXIST));
        epoll.wait(&mut list, Deadline::NOW);
        assert_eq!(list.iter().count(), 0);
        counter.signal();
        epoll.wait(&mut list, Deadline::NEVER);
        assert_eq!(list.iter().collect::<Vec<_>>(), [Ready { token: 17, events: IN }]);
        epoll.change(counter.raw(), OUT, 18).unwrap();
        epoll.wait(&mut list, Deadline::NEVER);
        assert_eq!(list.iter().next(), Some(Ready { token: 18, events: OUT }));
        epoll.remove(counter.raw()).unwrap();
        epoll.wait(&mut list, Deadline::after_ns(1));
        assert_eq!(list.iter().count(), 0);
    }
}
