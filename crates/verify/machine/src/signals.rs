//! Signals for the process. The machine delivers each signal to a thread that takes signals: at its
//! next system call or lock, or in an interruptible sleep.
//!
//! The thread then sends a real signal to itself, so masks and handlers are real.

use crate::{interpose::with_machine, schedule::World};
use nowait_sys::raw;

/// The kernel's argument of a handler: `siginfo_t`, which begins with the number.
pub(crate) type SigInfo = [u64; 16];

/// Lets the calling thread take the signals of its process from now on. A thread that never calls
/// this function takes no signals. Panics if the thread is on no machine.
pub fn take_signals() {
    with_machine(World::takes_signals);
}

/// Lets the kernel run the handler on the calling thread, unless the thread blocks the signal.
pub(crate) fn raise(signal: &SigInfo) {
    // SAFETY: no memory is involved.
    let (process, thread) =
        unsafe { (raw::kernel6(libc::SYS_getpid, [0; 6]), raw::kernel6(libc::SYS_gettid, [0; 6])) };
    let number = signal[0] as u32 as usize;
    let args = [process as usize, thread as usize, number, signal.as_ptr() as usize, 0, 0];
    // SAFETY: the kernel reads a live siginfo_t.
    let queued = unsafe { raw::kernel6(libc::SYS_rt_tgsigqueueinfo, args) };
    assert_eq!(queued, 0, "a signal can be queued");
}
