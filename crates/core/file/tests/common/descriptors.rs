//! Descriptors on which requests can wait.

use std::{
    fs::OpenOptions,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::null_mut,
};

/// A terminal and its other end, without echo.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let master = OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
    // SAFETY: takes a number.
    assert_eq!(unsafe { libc::unlockpt(master.as_raw_fd()) }, 0);
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes numbers; the descriptor is new, without another owner.
    let terminal =
        unsafe { OwnedFd::from_raw_fd(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags)) };
    let mode = std::process::Command::new("stty")
        .args(["-echo", "-icanon", "min", "1"])
        .stdin(terminal.try_clone().unwrap())
        .status();
    assert!(mode.unwrap().success());
    (terminal, master.into())
}

pub(crate) fn counter() -> OwnedFd {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    // SAFETY: a new descriptor, without another owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(crate) fn timer_of_a_millisecond() -> OwnedFd {
    let period = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let times = libc::itimerspec { it_interval: period, it_value: period };
    // SAFETY: takes numbers.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    // SAFETY: the kernel reads live times.
    assert_eq!(unsafe { libc::timerfd_settime(fd, 0, &raw const times, null_mut()) }, 0);
    // SAFETY: a new descriptor, without another owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
