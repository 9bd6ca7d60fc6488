//! The system call instruction.

use crate::Errno;

#[cfg(miri)]
pub use crate::raw_miri::syscall6;
#[cfg(not(any(miri, simulated)))]
pub use kernel6 as syscall6;

#[cfg(simulated)]
pub use simulated::{Answer, answered_by, pause, syscall6};

#[cfg(simulated)]
mod simulated {
    use std::sync::OnceLock;

    /// A function that answers system calls: number and arguments as for the kernel.
    pub type Answer = unsafe fn(i64, [usize; 6]) -> isize;

    static ANSWER: OnceLock<(Answer, fn())> = OnceLock::new();

    /// Makes `answer` answer the system calls that this process makes by [`syscall6`], for good.
    /// `answer` may call the kernel by [`super::kernel6`]. A thread that takes a lock of
    /// [`crate::mutex`], except by `try_read`, calls `pause` first.
    pub fn answered_by(answer: Answer, pause: fn()) {
        ANSWER.get_or_init(|| (answer, pause));
    }

    /// Calls the simulation's `pause`, which may let another thread run.
    pub fn pause() {
        if let Some((_, pause)) = ANSWER.get() {
            pause();
        }
    }

    /// Issues system call `nr`; the result is the answer's, a negative errno on failure.
    ///
    /// # Safety
    /// As for the kernel.
    pub unsafe fn syscall6(nr: i64, args: [usize; 6]) -> isize {
        let answer = ANSWER.get().map_or(super::kernel6 as Answer, |(answer, _)| *answer);
        // SAFETY: promised by the caller.
        unsafe { answer(nr, args) }
    }
}

/// Issues system call `nr`; the result is the kernel's, negative errno included.
///
/// # Safety
/// The arguments must be what the call expects; the kernel reads and writes through them.
/// Source: syscall(2), "Architecture calling conventions".
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub unsafe fn kernel6(nr: i64, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the registers are those of the x86-64 convention; rcx and r11 are clobbered by
    // the instruction. The caller promises the call's effects on memory.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") nr as isize => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    ret
}

/// Issues system call `nr`; the result is the kernel's, negative errno included.
///
/// # Safety
/// The arguments must be what the call expects; the kernel reads and writes through them.
/// Source: syscall(2), "Architecture calling conventions".
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
pub unsafe fn kernel6(nr: i64, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the registers are those of the arm64 convention. The caller promises the
    // call's effects on memory.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") nr,
            inlateout("x0") args[0] as isize => ret,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            in("x4") args[4], in("x5") args[5],
            options(nostack)
        );
    }
    ret
}

/// Turns the kernel's result into a value or an errno.
#[inline]
pub fn check(ret: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&ret) { Err(Errno::new(-ret as i32)) } else { Ok(ret as usize) }
}

/// Issues a system call with up to six arguments and checks its result.
#[macro_export]
macro_rules! sys {
    ($nr:expr $(, $arg:expr)*) => {{
        let given = [$($arg as usize),*];
        let mut args = [0usize; 6];
        args[..given.len()].copy_from_slice(&given);
        $crate::raw::check($crate::raw::syscall6($nr, args))
    }};
}

/// Numbers of the calls that the library recognises when a program makes them through syscall(2).
pub mod number {
    /// io_setup(2).
    pub const IO_SETUP: i64 = libc::SYS_io_setup;
    /// io_destroy(2).
    pub const IO_DESTROY: i64 = libc::SYS_io_destroy;
    /// io_submit(2).
    pub const IO_SUBMIT: i64 = libc::SYS_io_submit;
    /// io_cancel(2).
    pub const IO_CANCEL: i64 = libc::SYS_io_cancel;
    /// io_getevents(2).
    pub const IO_GETEVENTS: i64 = libc::SYS_io_getevents;
    /// io_pgetevents(2).
    #[cfg(target_arch = "x86_64")]
    pub const IO_PGETEVENTS: i64 = 333;
    /// io_pgetevents(2).
    #[cfg(not(target_arch = "x86_64"))]
    pub const IO_PGETEVENTS: i64 = 292;
}
