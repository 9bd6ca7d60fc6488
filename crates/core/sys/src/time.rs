//! Points in time on CLOCK_MONOTONIC.

/// The end of a wait: never, or an absolute time in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    /// The deadline that never comes.
    pub const NEVER: Deadline = Deadline(u64::MAX);
    /// The deadline that has always passed: do not wait.
    pub const NOW: Deadline = Deadline(0);

    /// Makes a deadline `ns` nanoseconds after the clock's zero.
    pub const fn at_ns(ns: u64) -> Deadline {
        Deadline(ns)
    }

    /// Makes a deadline `ns` nanoseconds from now.
    pub fn after_ns(ns: u64) -> Deadline {
        Deadline(now_ns().saturating_add(ns))
    }

    /// Returns the absolute time in nanoseconds; `None`: never.
    pub const fn ns(self) -> Option<u64> {
        if self.0 == u64::MAX { None } else { Some(self.0) }
    }

    /// Returns `true` for [`Deadline::NOW`].
    pub fn is_now(self) -> bool {
        self.0 == 0
    }

    /// Returns `true` if the deadline has passed. Reads the clock only if needed.
    pub fn has_passed(self) -> bool {
        self.0 != u64::MAX && (self.0 == 0 || now_ns() >= self.0)
    }

    /// Returns the nanoseconds left from now; `None`: never.
    pub fn remaining_ns(self) -> Option<u64> {
        (self.0 != u64::MAX).then(|| if self.0 == 0 { 0 } else { self.0.saturating_sub(now_ns()) })
    }

    /// Returns the absolute time; `None`: never.
    pub fn timespec(self) -> Option<libc::timespec> {
        (self.0 != u64::MAX).then(|| timespec_of(self.0))
    }

    /// Returns the time left as a relative timespec; `None`: never.
    pub fn remaining(self) -> Option<libc::timespec> {
        self.remaining_ns().map(timespec_of)
    }
}

fn timespec_of(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Returns the processor time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live local; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the clock of file timestamps in nanoseconds since 1970. The clock may tick only every
/// ten milliseconds (CLOCK_REALTIME_COARSE).
pub fn file_time_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live local; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Returns CLOCK_BOOTTIME in nanoseconds: it runs on while the machine is suspended.
pub fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live local; the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns CLOCK_MONOTONIC in nanoseconds.
#[inline]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live local; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
