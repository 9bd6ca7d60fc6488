//! What the own process has used so far.

use std::io;

use crate::error::{Context, Result};

/// Time and context switches of all threads, those that have ended included.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Used {
    /// User and system time, in microseconds.
    pub(crate) cpu_us: f64,
    pub(crate) switches: f64,
}

impl Used {
    /// Asks the kernel.
    pub(crate) fn now() -> Result<Self> {
        let used = usage(libc::RUSAGE_SELF)?;
        let time_us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        Ok(Self {
            cpu_us: time_us(used.ru_utime) + time_us(used.ru_stime),
            switches: (used.ru_nvcsw + used.ru_nivcsw) as f64,
        })
    }
}

/// Returns how often the calling thread has gone to sleep so far.
pub(crate) fn sleeps() -> Result<u64> {
    Ok(usage(libc::RUSAGE_THREAD)?.ru_nvcsw as u64)
}

/// Source: getrusage(2).
fn usage(of: libc::c_int) -> Result<libc::rusage> {
    // SAFETY: all-zero bytes are a valid rusage, which is made of integers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is a live local.
    if unsafe { libc::getrusage(of, &raw mut used) } != 0 {
        return Err(io::Error::last_os_error()).context(|| "getrusage".to_owned());
    }
    Ok(used)
}
