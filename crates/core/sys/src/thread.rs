//! The kernel's view of a thread: its signals, its identity, its priority. Also handlers of fork.

use crate::{
    Errno,
    confined::{self, Extra},
    errno, sys,
};

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signal by which the C library makes every thread change its identity. A caller of setuid(2)
/// or one of its kin waits until each thread has changed its identity.
const SETXID: u64 = bit(if cfg!(target_env = "musl") { 34 } else { 33 });

const OF_THE_C_LIBRARY: u64 = bit(32) | bit(33) | SETXID;

/// All signals that a thread may block: those that the C library does not reserve.
pub const ALL_SIGNALS: u64 = !OF_THE_C_LIBRARY;

/// [`ALL_SIGNALS`] without SIGABRT and the signals that an instruction of the thread itself raises.
/// If an instruction raises such a signal while the thread blocks it, the kernel ends the process,
/// even if there is a handler.
pub const ALL_BUT_FAULTS: u64 = ALL_SIGNALS
    & !(bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGFPE) | bit(libc::SIGILL))
    & !(bit(libc::SIGTRAP) | bit(libc::SIGSYS) | bit(libc::SIGABRT));

/// Runs `work` and keeps setuid(2) and its kin from changing this thread's identity: a thread that
/// calls one of them meanwhile waits until `work` is over.
///
/// `work` must not wait for a thread in such a call, and must start no thread.
pub fn with_steady_identity<T>(work: impl FnOnce() -> T) -> T {
    let before = change_signal_mask(libc::SIG_BLOCK, SETXID);
    let done = work();
    swap_signal_mask(before);
    done
}

/// Returns the number of times that the calling thread has slept; `None`: a filter of the program
/// forbids the system call. Source: getrusage(2), `ru_nvcsw`.
pub fn times_slept() -> Option<u64> {
    confined::check(Extra::Sleeps).ok()?;
    // SAFETY: a rusage is plain data, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` is a live local.
    let _ = unsafe { sys!(libc::SYS_getrusage, libc::RUSAGE_THREAD, &raw mut usage) };
    Some(usage.ru_nvcsw as u64)
}

/// Blocks more signals on this thread and returns the mask before. Source: rt_sigprocmask(2).
pub fn block_signals(signals: u64) -> u64 {
    change_signal_mask(libc::SIG_BLOCK, signals)
}

/// Sets this thread's signal mask and returns the one before. Source: rt_sigprocmask(2).
pub fn swap_signal_mask(mask: u64) -> u64 {
    change_signal_mask(libc::SIG_SETMASK, mask)
}

/// Handlers of pending signals run before this function returns.
///
/// A handler may end the thread (pthread_exit), which unwinds the stack from here. So this function
/// calls the C library's, whose frame may be unwound, and callers must have nothing to drop.
pub(crate) fn let_handlers_run(mask: u64) {
    unsafe extern "C-unwind" {
        fn pthread_sigmask(how: i32, set: *const SignalSet, before: *mut SignalSet) -> i32;
    }
    let mut set = SignalSet([0; size_of::<libc::sigset_t>() / 8]);
    set.0[0] = mask;
    // SAFETY: a live local of the C library's size, of which the kernel reads the first 8 bytes.
    unsafe { pthread_sigmask(libc::SIG_SETMASK, &raw const set, core::ptr::null_mut()) };
}

/// Delivers the signals that this thread's own mask blocks and `mask` does not, as a wait with a
/// mask does: it runs the handlers that one such wait would run. A handler may end the thread, as
/// in [`let_handlers_run`].
pub(crate) fn let_signals_in(mask: u64) {
    unsafe extern "C-unwind" {
        // Unlike the C library's ppoll(2), its syscall(2) is no cancellation point.
        fn syscall(number: libc::c_long, ...) -> libc::c_long;
    }
    let at_once = [0i64; 2];
    errno::preserved(|| {
        let (mask, bytes) = (&raw const mask, size_of_val(&mask));
        // SAFETY: no descriptors; time and mask are live locals.
        unsafe { syscall(libc::SYS_ppoll, 0usize, 0usize, at_once.as_ptr(), mask, bytes) };
    });
}

#[repr(C)]
struct SignalSet([u64; size_of::<libc::sigset_t>() / 8]);

fn change_signal_mask(how: i32, mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: both sets are live locals of the kernel's 8 bytes.
    let _ = unsafe {
        sys!(
            libc::SYS_rt_sigprocmask,
            how,
            core::ptr::from_ref(&mask),
            core::ptr::from_mut(&mut before),
            8
        )
    };
    before
}

/// Returns the kernel's id of this thread.
pub fn thread_id() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_gettid) }.unwrap_or(0) as i32
}

/// Returns the kernel's id of this thread, with a system call only the first time. In a forked
/// child the function may return the id of the parent's thread that forked.
pub fn this_thread() -> i32 {
    std::thread_local!(static THREAD: i32 = thread_id());
    THREAD.with(|id| *id)
}

/// Returns a number that no other live thread has, without a system call. A thread that begins
/// after this thread has ended may get the same number.
pub fn mark() -> usize {
    std::thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| core::ptr::from_ref(mark).addr())
}

/// Returns the id of this process.
pub fn process_id() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_getpid) }.unwrap_or(0) as i32
}

/// Returns the real user id of this thread.
pub fn user_id() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_getuid) }.unwrap_or(0) as u32
}

/// Sends `signal` to one thread of this process. Source: tgkill(2).
pub fn send_signal(thread_id: i32, signal: i32) {
    // SAFETY: no memory is involved.
    let _ = unsafe { sys!(libc::SYS_tgkill, process_id(), thread_id, signal) };
}

/// Queues a signal that has arrived for this thread again. `info` is the signal's `siginfo_t`, of
/// 128 bytes; a thread may send itself any `siginfo_t`. If no more signals can be queued
/// (RLIMIT_SIGPENDING), the signal arrives without `info`. Source: rt_tgsigqueueinfo(2).
pub(crate) fn signal_again(signal: i32, info: *const i32) {
    let (process, thread) = (process_id(), thread_id());
    // SAFETY: the kernel reads the siginfo_t that it gave to a handler.
    let queued = unsafe { sys!(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) };
    if queued.is_err() {
        send_signal(thread, signal);
    }
}

const IOPRIO_WHO_PROCESS: usize = 1;

/// Returns the I/O priority of this thread, 0 when none was set. Source: ioprio_get(2).
pub fn io_priority() -> u16 {
    // SAFETY: no memory is involved; 0 names the calling thread.
    unsafe { sys!(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) }.unwrap_or(0) as u16
}

/// Checks that this thread may request an I/O priority; sets nothing. Returns `Ok` for all
/// priorities if a filter of the program refuses the check.
///
/// # Errors
/// `EPERM`: a real-time class without the capability for it. `EINVAL`: the running kernel does not
/// know this class, level or hint.
/// Source: ioprio_set(2), `ioprio_check_cap` in block/ioprio.c.
pub fn check_io_priority(priority: u16) -> Result<(), Errno> {
    const NOBODY: i32 = i32::MAX;
    // The kernel finds no thread, because process ids are lower.
    let check = |priority| match io_priority_set(NOBODY, priority) {
        Err(Errno::SRCH) => Ok(()),
        answer => answer,
    };
    // The kernel permits priority 0 to every thread; a filter refuses the call for all priorities.
    check(priority).or_else(|errno| check(0).map_or(Ok(()), |()| Err(errno)))
}

/// Sets the I/O priority of this thread, 0 for none.
///
/// # Errors
/// `EPERM`: a real-time class without the capability for it, or a filter of the program refuses or
/// forbids the call. `EINVAL`: no such class. A filter may refuse the call with other errors.
/// Source: ioprio_set(2).
pub fn set_io_priority(priority: u16) -> Result<(), Errno> {
    io_priority_set(0, priority) // 0 names the calling thread
}

fn io_priority_set(thread: i32, priority: u16) -> Result<(), Errno> {
    confined::check(Extra::IoPriority)?;
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, priority) }.map(drop)
}

/// Lets threads that wake this one continue: when woken, this thread waits for a processor instead
/// of preempting its waker. A thread with another policy than SCHED_OTHER keeps its policy.
/// Source: sched(7), `SCHED_BATCH`.
pub fn yield_to_wakers() {
    // SAFETY: no memory is involved; 0 names the calling thread.
    if unsafe { sys!(libc::SYS_sched_getscheduler, 0) } == Ok(libc::SCHED_OTHER as usize) {
        let priority = 0i32;
        // SAFETY: a live local, which the kernel reads as a sched_param. A refusal costs time only.
        let _ = unsafe {
            sys!(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &raw const priority)
        };
    }
}

/// Makes every child that fork(3) makes from now on run `child`, also while the process exits: the
/// calling library must never be unmapped. Children of `_Fork` and clone(2) do not run it
/// (`crate::fork`).
/// Source: pthread_atfork(3).
pub fn at_fork(child: extern "C" fn()) {
    // SAFETY: the handler is a plain function that lives as long as the library.
    let _ = unsafe { register_at_fork(None, None, Some(child)) };
}

type AtFork = Option<unsafe extern "C" fn()>;

/// Like pthread_atfork(3), but the handlers belong to no library. At exit(3) the C library removes
/// the handlers of a library. If there are several handlers, and another thread that forks runs
/// them at that moment, the process aborts ("Fatal glibc error: array index 0 not less than array
/// length 0"; seen with glibc 2.36).
#[cfg(target_env = "gnu")]
unsafe fn register_at_fork(before: AtFork, parent: AtFork, child: AtFork) -> i32 {
    unsafe extern "C" {
        fn __register_atfork(_: AtFork, _: AtFork, _: AtFork, library: *const u8) -> i32;
    }
    // SAFETY: the caller's promise for the handlers; null names no library.
    unsafe { __register_atfork(before, parent, child, core::ptr::null()) }
}

#[cfg(not(target_env = "gnu"))]
unsafe fn register_at_fork(before: AtFork, parent: AtFork, child: AtFork) -> i32 {
    // SAFETY: the caller's promise for the handlers.
    unsafe { libc::pthread_atfork(before, parent, child) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_yields_to_its_wakers_unless_it_has_another_policy() {
        // SAFETY: as in `yield_to_wakers`.
        let policy = || unsafe { sys!(libc::SYS_sched_getscheduler, 0) };
        let set = |policy: i32| {
            let priority = 0i32;
            // SAFETY: a live local.
            unsafe { sys!(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) }
        };
        std::thread::spawn(move || {
            yield_to_wakers();
            assert_eq!(policy(), Ok(libc::SCHED_BATCH as usize));
            set(libc::SCHED_IDLE).expect("a lower priority");
            yield_to_wakers();
            assert_eq!(policy(), Ok(libc::SCHED_IDLE as usize));
        })
        .join()
        .expect("no panic");
    }
}
