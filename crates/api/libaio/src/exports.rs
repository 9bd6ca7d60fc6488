//! The functions that the C files call. Most of them run in [`guarded`], which stops panics and
//! preserves `errno`.

use crate::{
    calls::{self, Caller, Wanted},
    watch,
};
use nowait_process::{
    guarded, last_thread, leaving,
    process::{self, Process},
};
use nowait_sys::{
    Errno, fd, fork,
    inside::{self, Arrival, Inside},
    seccomp::{self, Program},
};

/// io_setup(2).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_io_setup(nr: i32, context: usize) -> i32 {
    guarded(|| calls::setup(nr as u32, context)) as i32
}

/// io_destroy(2).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_io_destroy(context: usize) -> i32 {
    guarded(|| calls::destroy(context)) as i32
}

/// io_submit(2).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_io_submit(context: usize, nr: i64, iocbs: usize) -> i32 {
    guarded(|| calls::submit(context, nr, iocbs)) as i32
}

/// io_cancel(2).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_io_cancel(context: usize, iocb: usize, _event: usize) -> i32 {
    guarded(|| calls::cancel(context, iocb)) as i32
}

/// io_getevents(2).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_io_getevents(
    context: usize,
    min: i64,
    nr: i64,
    events: usize,
    timeout: usize,
) -> i32 {
    let wanted = Wanted { min, nr, events, timeout };
    guarded(|| calls::getevents(Caller::Library, context, wanted)) as i32
}

/// io_pgetevents(2) in libaio's form.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_io_pgetevents(
    context: usize,
    min: i64,
    nr: i64,
    events: usize,
    timeout: usize,
    sigmask: usize,
) -> i32 {
    let wanted = Wanted { min, nr, events, timeout };
    guarded(|| calls::pgetevents(context, wanted, sigmask)) as i32
}

/// Runs when the library is loaded; `is_alone`: the process is known to have one thread.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.startup")]
pub extern "C-unwind" fn nowait_at_load(is_alone: bool) {
    // Record the owner now: a child of vfork that asks later is not the owner.
    fork::owner();
    process::note_at_load();
    seccomp::note_at_load();
    if is_alone {
        fd::make_room();
    }
    last_thread::watch_main_thread();
}

/// Runs as a destructor of the library, at the end of the process.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_at_exit() {
    let _ = guarded(|| {
        leaving::at_exit();
        Ok(0)
    });
}

/// Handles a call of `syscall(2)` that makes a context, or concerns a context of the library.
/// Returns `true` if this function has handled the call; then `result` is the value or the negative
/// errno.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_syscall(nr: i64, args: &[usize; 6], result: &mut i64) -> bool {
    let mut answered = None;
    let value = guarded(|| {
        answered = watch::syscall(nr, *args);
        Ok(0)
    });
    let _ = value;
    match answered {
        Some(Ok(value)) => *result = value,
        Some(Err(errno)) => *result = -i64::from(errno.raw()),
        None => return false,
    }
    true
}

/// Called before the program installs a seccomp filter. Returns the calls that the filter newly
/// forbids, as a bit mask.
///
/// # Safety
/// `filter` is null, or the filter that the kernel will read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn nowait_confines(filter: *const Program) -> u32 {
    // SAFETY: promised above.
    let sees = || Ok(i64::from(unsafe { seccomp::sees(filter) }));
    guarded(sees).try_into().unwrap_or(0)
}

/// Called when the kernel has refused the filter for which [`nowait_confines`] returned
/// `forbidden`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_confines_not(forbidden: u32) {
    seccomp::was_refused(forbidden);
}

/// Returns `true` if the calling process owns its memory: `false` in a child of vfork.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.startup")]
pub extern "C-unwind" fn nowait_is_owner() -> bool {
    fork::is_owner()
}

/// Returns `true` if the calling process owns its memory and has begun to use libaio or POSIX AIO.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_is_watched() -> bool {
    Process::of_caller().is_some()
}

/// Records that this library watches the C library's close and similar functions.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.startup")]
pub extern "C-unwind" fn nowait_watches() {
    process::watches_closes();
}

/// Called before the application closes or replaces `fd`. Returns 0, or a negative errno if the
/// library owns `fd`: the application's call must then fail with this errno.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_closing(fd: i32) -> i32 {
    let value = guarded(|| match watch::closing(fd) {
        false => Ok(0),
        true => Err(Errno::BADF),
    });
    value as i32
}

/// Returns `true` if requests may name `fd` as their eventfd. Takes no lock and makes no system
/// call.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_names_counter(fd: i32) -> bool {
    process::names_counter(fd)
}

/// Called when the thread has read eight bytes from `fd`, and requests may name `fd` as their
/// eventfd. The caller has checked that the process owns its memory.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_counter_read(fd: i32) {
    guarded(|| {
        Process::existing().into_iter().for_each(|process| process.counter_was_read(fd));
        Ok(0)
    });
}

/// Decides, inside a signal handler, when the program's handler runs. If the result is negative,
/// the kernel delivers the signal again when the interrupted call of the library is over. Otherwise
/// the caller runs the program's handler now, and then calls [`nowait_signal_handled`] with the
/// result and the mask.
///
/// # Safety
/// `info` and `mask` are the kernel's arguments of the handler that calls this.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn nowait_signal_arrives(
    signal: i32,
    info: *const i32,
    mask: *mut u64,
) -> i64 {
    // SAFETY: promised above.
    match unsafe { inside::defer(signal, info, mask) } {
        Arrival::Deferred => -1,
        Arrival::Now(depth) => i64::from(depth),
    }
}

/// Called when the program's handler has returned.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_signal_handled(depth: i64, mask: *const u64) {
    inside::handled(depth as u32, mask);
}

/// Begins a group of calls. Handlers of the program, except handlers of faults, run only after the
/// group.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_begin() {
    core::mem::forget(Inside::enter());
}

/// Ends the group. If no other call of the library is in progress on this thread, deferred signal
/// handlers run now.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_end() {
    Inside::leave();
}

/// Returns `true` in a call of the library, or in a signal handler that has interrupted one.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_is_interrupted() -> bool {
    inside::is_interrupted()
}

/// Waits for accepted requests before the process's memory goes away ([`leaving::settle`]).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_settle(is_interrupted: bool) {
    guarded(|| {
        leaving::settle(is_interrupted);
        Ok(0)
    });
}

/// Returns `false` if a signal handler has submitted a request since this thread has settled
/// ([`leaving::is_settled`]).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_is_settled() -> bool {
    leaving::is_settled()
}

/// Returns how many calls of this thread have settled and not returned yet; 0 once a signal handler
/// on top of them has submitted a request.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_settlements() -> u32 {
    leaving::settlements()
}

/// Called before `_exit`: waits like [`nowait_settle`], then writes the report if one is wanted
/// ([`leaving::leave`]). The caller has deferred the program's signal handlers for good.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_leave(is_interrupted: bool) {
    guarded(|| {
        leaving::leave(is_interrupted);
        Ok(0)
    });
}

/// close_range(2) that leaves the library's descriptors open; returns the value or the negative
/// errno.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_close_range(first: u32, last: u32, flags: u32) -> i64 {
    guarded(|| watch::close_range(first, last, flags))
}
