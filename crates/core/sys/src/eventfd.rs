//! Eventfds, on which a thread, a ring or an application's event loop can wait.

use crate::{
    Errno, Fd,
    confined::{self, Extra},
    poll, sys,
};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::os::fd::{AsFd, BorrowedFd};

/// An owned, non-blocking eventfd. Source: eventfd(2).
#[derive(Debug)]
pub struct EventFd(Fd);

impl EventFd {
    /// Creates an eventfd at zero, non-blocking and close-on-exec.
    pub fn new() -> Result<EventFd, Errno> {
        // SAFETY: no memory is involved.
        let fd = unsafe { sys!(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }?;
        Ok(EventFd(Fd::from_raw(fd as i32)))
    }

    /// Gives up ownership of the descriptor.
    pub fn into_raw(self) -> i32 {
        self.0.into_raw()
    }

    /// Moves the descriptor to a high number, see [`Fd::moved_high`].
    #[must_use]
    pub fn moved_high(self) -> EventFd {
        EventFd(self.0.moved_high())
    }

    /// Returns the descriptor, still owned.
    pub fn raw(&self) -> i32 {
        self.0.raw()
    }

    /// Adds one and wakes waiting threads.
    pub fn signal(&self) {
        signal(self.0.raw());
    }

    /// Resets the eventfd to zero; returns its count.
    pub fn drain(&self) -> u64 {
        drain(self.0.raw())
    }
}

/// An eventfd with a flag: without a signal, a thread needs no system call to know that.
///
/// A signal sets the flag last, and a reset clears the flag first. So while the eventfd is
/// readable, the flag is set, or a signal is about to set it. A flag that is set late costs an
/// empty drain.
#[derive(Debug)]
pub struct FlaggedEventFd {
    eventfd: EventFd,
    is_signalled: AtomicBool,
}

impl FlaggedEventFd {
    /// Creates an eventfd without a signal.
    pub fn new() -> Result<FlaggedEventFd, Errno> {
        Ok(FlaggedEventFd { eventfd: EventFd::new()?, is_signalled: AtomicBool::new(false) })
    }

    /// Returns the descriptor, still owned.
    pub fn raw(&self) -> i32 {
        self.eventfd.raw()
    }

    /// Wakes waiting threads, which find what the caller has stored before.
    pub fn signal(&self) {
        self.signal_with(|| {});
    }

    /// Resets the eventfd if the flag is set, and returns `true` then. The caller looks afterwards
    /// for what the signals announced.
    pub fn reset(&self) -> bool {
        self.reset_with(|| {})
    }

    fn signal_with(&self, between: impl FnOnce()) {
        self.eventfd.signal();
        between();
        self.is_signalled.store(true, SeqCst);
    }

    fn reset_with(&self, between: impl FnOnce()) -> bool {
        let was_signalled = self.is_signalled.swap(false, SeqCst);
        if was_signalled {
            between();
            self.eventfd.drain();
        }
        was_signalled
    }
}

/// Resets the eventfd or timer behind `fd` to zero; returns its count, 0 if the read fails.
pub fn drain(fd: i32) -> u64 {
    let mut count = 0u64;
    // SAFETY: the buffer is a live local of the 8 bytes the call fills.
    let read = unsafe { sys!(libc::SYS_read, fd, core::ptr::from_mut(&mut count), 8) };
    if read == Ok(8) { count } else { 0 }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.0.raw()) }
    }
}

/// Adds one to the program's eventfd behind `fd`, unless it is full. A full eventfd is readable
/// anyway, and a write to a blocking one would wait until the program reads it.
pub fn count(fd: i32) {
    if poll::has_room(fd) {
        signal(fd);
    }
}

/// Adds one to the eventfd behind `fd`, and wakes the threads that wait for it. The eventfd must be
/// non-blocking or have room.
pub fn signal(fd: i32) {
    let one = 1u64;
    // SAFETY: the buffer is a live local of the 8 bytes the call reads.
    let _ = unsafe { sys!(libc::SYS_write, fd, core::ptr::from_ref(&one), 8) };
}

/// Wakes the threads that wait for the eventfd behind `fd`, and leaves its count alone: an
/// edge-triggered epoll set reports it once more if it is readable.
pub fn rouse(fd: i32) {
    let none = 0u64;
    // SAFETY: the buffer is a live local of the 8 bytes the call reads.
    let _ = unsafe { sys!(libc::SYS_write, fd, core::ptr::from_ref(&none), 8) };
}

/// Returns `true` if the anonymous file behind `fd` accepts writes as an eventfd does; timers,
/// epoll sets and most other anonymous files do not. Tries a write from memory that is not mapped.
pub fn looks_like_eventfd(fd: i32) -> bool {
    const COUNTER_BYTES: usize = 8;
    // SAFETY: the address is no memory of the program: the kernel reads nothing and says so.
    let written = unsafe { sys!(libc::SYS_write, fd, usize::MAX - COUNTER_BYTES, COUNTER_BYTES) };
    written == Err(Errno::FAULT)
}

/// Returns `true` if `fd` is an eventfd, if /proc cannot show what it is, or if a filter of the
/// program forbids the look.
///
/// # Errors
/// `EBADF`: not open, or only as a name (O_PATH).
pub fn is_eventfd(fd: i32) -> Result<bool, Errno> {
    const NAME: &[u8] = b"anon_inode:[eventfd]";
    let path = format!("/proc/thread-self/fd/{fd}\0");
    // The buffer has one byte more than the name, so that a longer name does not match.
    let mut link = [0u8; NAME.len() + 1];
    let (at, len) = (libc::AT_FDCWD, link.len());
    // SAFETY: the path ends with a zero byte; `link` is a live local of the length given.
    let mut look =
        || unsafe { sys!(libc::SYS_readlinkat, at, path.as_ptr(), link.as_mut_ptr(), len) };
    let read = confined::check(Extra::DescriptorTypes).and_then(|()| look());
    match read {
        Ok(bytes) if &link[..bytes] == NAME => Ok(true),
        // Without /proc the type is unknown, and `fd` counts as an eventfd.
        read => match crate::file::status_flags(fd)? {
            flags if flags & libc::O_PATH != 0 => Err(Errno::BADF),
            _ => Ok(read.is_err()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::{sync::mpsc, time::Duration};

    /// An event loop makes a turn while the eventfd is readable. Each signal announces a result.
    #[test]
    #[cfg_attr(miri, ignore = "eventfds")]
    fn however_signals_and_resets_meet_no_result_is_left_and_the_eventfd_is_reset() {
        let eventfd = FlaggedEventFd::new().unwrap();
        let (results, taken) = (Cell::new(0), Cell::new(0));
        let signal = |between: &dyn Fn()| {
            results.set(results.get() + 1);
            eventfd.signal_with(between);
        };
        let turn = |between: &dyn Fn()| {
            if eventfd.reset_with(between) {
                taken.set(taken.get() + results.take());
            }
        };
        let nothing = || {};
        let signal_alone = || signal(&nothing);
        let turn_alone = || turn(&nothing);
        let cases: [(&str, u32, &dyn Fn()); 5] = [
            ("a signal", 1, &signal_alone),
            ("a turn in a signal", 1, &|| signal(&turn_alone)),
            ("a turn in the second of three signals", 3, &|| {
                signal_alone();
                signal(&turn_alone);
                signal_alone();
            }),
            ("a signal in a turn", 2, &|| {
                signal_alone();
                turn(&signal_alone);
            }),
            ("a signal in a turn in a signal", 3, &|| {
                signal_alone();
                signal(&|| turn(&signal_alone));
            }),
        ];
        for (name, count, meet) in cases {
            meet();
            for _ in 0..2 {
                if poll::ready(eventfd.raw(), libc::POLLIN) != Ok(0) {
                    turn_alone();
                }
            }
            let is_readable = poll::ready(eventfd.raw(), libc::POLLIN) != Ok(0);
            assert_eq!((taken.take(), is_readable), (count, false), "{name}");
        }
    }

    /// A thread of the engine has other requests to complete, so it must not wait for the program's
    /// read.
    #[test]
    #[cfg_attr(miri, ignore = "eventfds")]
    fn a_count_waits_for_no_read_of_a_full_eventfd() {
        const FULL: u64 = u64::MAX - 1;
        // SAFETY: no memory is involved.
        let fd = unsafe { sys!(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC) }.unwrap();
        let counter = EventFd(Fd::from_raw(fd as i32));
        let fd = counter.raw();
        count(fd);
        assert_eq!(counter.drain(), 1);
        // SAFETY: the buffer is a live constant of the 8 bytes the call reads.
        let filled = unsafe { sys!(libc::SYS_write, fd, core::ptr::from_ref(&FULL), 8) };
        assert_eq!(filled, Ok(8));
        let (counted, counts) = mpsc::channel();
        std::thread::spawn(move || {
            count(fd);
            counted.send(()).unwrap();
        });
        let counted = counts.recv_timeout(Duration::from_secs(10));
        assert_eq!((counted, counter.drain()), (Ok(()), FULL));
    }
}
