//! Timers with a descriptor that becomes readable.

use crate::{Errno, Fd, eventfd::drain, sys};

/// A periodic timer. Its descriptor is readable when the timer has expired, and a read waits for
/// that.
/// Source: timerfd_create(2).
#[derive(Debug)]
pub struct Timer(Fd);

impl Timer {
    /// Makes a timer that expires every `period` nanoseconds from now on, on CLOCK_MONOTONIC.
    /// `period` must not be 0.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptor.
    pub fn every_ns(period: u64) -> Result<Timer, Errno> {
        // SAFETY: no memory is involved.
        let fd =
            unsafe { sys!(libc::SYS_timerfd_create, libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) }?;
        let timer = Timer(Fd::from_raw(fd as i32));
        let (seconds, nanoseconds) = (period / 1_000_000_000, period % 1_000_000_000);
        let period = [seconds, nanoseconds];
        let times = [period, period]; // struct itimerspec: the interval, then the first time
        let (fd, times, none) = (timer.0.raw(), times.as_ptr(), core::ptr::null::<u64>());
        // SAFETY: the times are a live local laid out as the kernel's `struct itimerspec`.
        unsafe { sys!(libc::SYS_timerfd_settime, fd, 0, times, none) }?;
        Ok(timer)
    }

    /// Returns the descriptor, still owned.
    pub fn raw(&self) -> i32 {
        self.0.raw()
    }

    /// Returns the number of expirations since the last call; waits if there was none.
    pub fn reset(&self) -> u64 {
        drain(self.0.raw())
    }
}
