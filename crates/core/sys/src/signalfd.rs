//! Signals that a thread reads from a descriptor instead of being interrupted.

use crate::{Errno, Fd, poll, sys};

/// Hang-up: read the configuration again (`SIGHUP`).
pub const HUP: i32 = libc::SIGHUP;
/// Interrupt from the terminal (`SIGINT`).
pub const INT: i32 = libc::SIGINT;
/// Terminate (`SIGTERM`).
pub const TERM: i32 = libc::SIGTERM;

/// A descriptor from which signals are read. Source: signalfd(2).
#[derive(Debug)]
pub struct Signals(Fd);

impl Signals {
    /// Blocks `signals` on the calling thread and makes them readable here. New threads inherit the
    /// blocked signals. Call this function before the first thread starts, or a thread without the
    /// block may get the signal.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptors left. `ENOMEM`.
    pub fn take(signals: &[i32]) -> Result<Signals, Errno> {
        let set = signals.iter().fold(0u64, |set, signal| set | 1 << (signal - 1));
        let pointer = core::ptr::from_ref(&set);
        // SAFETY: the set is a live local of the kernel's 8 bytes; no old set is asked for.
        unsafe { sys!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, pointer, 0, 8) }?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: as above.
        let fd = unsafe { sys!(libc::SYS_signalfd4, -1isize, pointer, 8, flags) }?;
        Ok(Signals(Fd::from_raw(fd as i32)))
    }

    /// Returns the descriptor, readable while a signal is pending.
    pub fn raw(&self) -> i32 {
        self.0.raw()
    }

    /// Returns `true` if a signal is pending.
    pub fn is_pending(&self) -> bool {
        poll::ready(self.raw(), libc::POLLIN) != Ok(0)
    }

    /// Takes a pending signal; `None`: none is pending.
    pub fn next(&self) -> Option<i32> {
        let mut info = core::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` is a live local of the type the call fills.
        let read = unsafe { sys!(libc::SYS_read, self.0.raw(), info.as_mut_ptr(), size) };
        // SAFETY: zeroes are a valid value, and the kernel filled it.
        (read == Ok(size)).then(|| unsafe { info.assume_init() }.ssi_signo as i32)
    }
}
