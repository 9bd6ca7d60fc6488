//! Signals that notify this process of the end of a request.

use crate::{
    Errno, sys,
    thread::{process_id, user_id},
};

/// The kernel's `siginfo_t`, as far as a queued signal fills it.
#[repr(C)]
struct SigInfo {
    signo: i32,
    errno: i32,
    code: i32,
    padding: i32,
    pid: i32,
    uid: u32,
    value: usize,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<SigInfo>() == 128);

/// The `si_code` of a signal for the completion of an asynchronous request.
const SI_ASYNCIO: i32 = -4;

/// Queues `signal` with `value` for this process, as for the end of an asynchronous request. If no
/// more signals can be queued (RLIMIT_SIGPENDING), sends it without the value.
///
/// # Errors
/// `EINVAL`: no such signal. Source: rt_sigqueueinfo(2).
pub fn tell_completion(signal: i32, value: usize) -> Result<(), Errno> {
    let pid = process_id();
    let info = SigInfo {
        signo: signal,
        errno: 0,
        code: SI_ASYNCIO,
        padding: 0,
        pid,
        uid: user_id(),
        value,
        rest: [0; 12],
    };
    let info = core::ptr::from_ref(&info);
    // SAFETY: the kernel reads 128 bytes of a live local of that size.
    let queued = unsafe { sys!(libc::SYS_rt_sigqueueinfo, pid, signal, info) };
    match queued {
        // SAFETY: no memory is involved.
        Err(Errno::AGAIN) => unsafe { sys!(libc::SYS_kill, pid, signal) }.map(drop),
        queued => queued.map(drop),
    }
}

/// Removes the pending signal that a failed write has raised on this thread, which must have it
/// blocked. Does nothing if `error` is neither EPIPE nor EFBIG.
/// Source: rt_sigtimedwait(2); write(2), EPIPE and EFBIG.
pub fn take_back(error: Errno) {
    let signal = match error {
        Errno::PIPE => libc::SIGPIPE,
        Errno::FBIG => libc::SIGXFSZ,
        _ => return,
    };
    let set = 1u64 << (signal - 1);
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (set, at_once) = (core::ptr::from_ref(&set), core::ptr::from_ref(&at_once));
    // SAFETY: both are live locals, the set of the kernel's 8 bytes; no info is asked for.
    let _ = unsafe { sys!(libc::SYS_rt_sigtimedwait, set, 0, at_once, 8) };
}
