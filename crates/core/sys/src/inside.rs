//! Signal handlers of the program run between calls of the library, not inside one, except for
//! faults.
//!
//! A handler must not run while the interrupted call holds a lock: the handler may call exit(3),
//! which waits for the requests in flight, or wait for a request itself.
//!
//! So a thread counts the calls it is in ([`Inside`]). The library sends a signal that arrives
//! during a call to the same thread again, and keeps it and [`thread::ALL_BUT_FAULTS`] blocked
//! until the call is over ([`defer`]). A deferred signal ends the sleep of an [`interruptible`]
//! part. If the signal arrives just before the sleep, `defer` writes to a word that `sleep` names,
//! which makes the system call return at once. A wait with its own signal mask lets signals in
//! where it sleeps, and once at its end ([`masked`]); their handlers run when the call is over.
//!
//! A deferred handler may leave by longjmp(3) or end its thread, because no call is below it on the
//! stack. If a handler of a fault leaves so, the interrupted call never ends and keeps its locks
//! and memory.
//!
//! The state of this module belongs to one thread and its signal handlers: relaxed atomics and
//! compiler fences are enough.

use crate::{
    Errno,
    mistake::{self, Mistake},
    poll, thread,
    time::Deadline,
};
use core::{
    marker::PhantomData,
    sync::atomic::compiler_fence,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
        Ordering::SeqCst,
    },
};

struct Here {
    depth: AtomicU32,
    /// `true`: a signal waits until the calls end. The thread's signal mask is then set to `mask`.
    is_deferred: AtomicBool,
    mask: AtomicU64,
    /// The signal mask of a wait that has its own. At the end of the call, the handlers of pending
    /// signals that this mask does not block run.
    wait_mask: AtomicU64,
    is_interruptible: AtomicBool,
    /// The address and the value that a signal writes, so that a sleep that has not begun returns
    /// at once.
    escape: AtomicPtr<u64>,
    instead: AtomicU64,
    /// The address of the frame of the outermost running handler; 0: none runs.
    handler: AtomicUsize,
    /// The number of calls on the stack below a handler of a fault.
    frozen: AtomicU32,
}

const KEEPS_ALL_OUT: u64 = u64::MAX;

thread_local! {
    // Without a destructor: it needs no registration, and is usable until the thread ends.
    static HERE: Here = const {
        Here {
            depth: AtomicU32::new(0),
            is_deferred: AtomicBool::new(false),
            mask: AtomicU64::new(0),
            wait_mask: AtomicU64::new(KEEPS_ALL_OUT),
            is_interruptible: AtomicBool::new(false),
            escape: AtomicPtr::new(core::ptr::null_mut()),
            instead: AtomicU64::new(0),
            handler: AtomicUsize::new(0),
            frozen: AtomicU32::new(0),
        }
    };
}

/// A call of the library, for as long as this lives. Handlers are deferred until its end.
#[must_use]
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Begins a call; calls nest.
    #[inline]
    pub fn enter() -> Inside {
        HERE.with(|here| {
            here.depth.store(here.depth.load(Relaxed) + 1, Relaxed);
            if here.handler.load(Relaxed) != 0 {
                is_handler_running(here); // now, while a handler that has left is recognizable
            }
        });
        compiler_fence(SeqCst);
        Inside(PhantomData)
    }

    /// Ends a call whose [`Inside`] was passed to `mem::forget`, as dropping it does.
    pub fn leave() {
        drop(Inside(PhantomData));
    }
}

impl Drop for Inside {
    /// The end of the outermost call runs the deferred handlers, which may end the thread. So the
    /// function that began the call must have nothing else to drop, and is `extern "C-unwind"` if C
    /// calls it.
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        HERE.with(|here| {
            let depth = here.depth.load(Relaxed) - 1;
            here.depth.store(depth, Relaxed);
            compiler_fence(SeqCst);
            if depth == 0 && here.is_deferred.load(Relaxed) {
                let_handlers_run(here);
            }
        });
    }
}

/// The kernel delivers the deferred signals before this returns.
#[cold]
fn let_handlers_run(here: &Here) {
    let mask = here.mask.load(Relaxed);
    let wait_mask = here.wait_mask.load(Relaxed);
    here.wait_mask.store(KEEPS_ALL_OUT, Relaxed);
    here.is_deferred.store(false, Relaxed);
    compiler_fence(SeqCst);
    thread::let_handlers_run(mask);
    if wait_mask != KEEPS_ALL_OUT {
        thread::let_signals_in(wait_mask);
    }
}

/// Returns `true` if the calling thread is in a call of the library, or in a handler on top of one:
/// a handler of a fault, or one that was not installed through the C library.
pub fn is_interrupted() -> bool {
    HERE.with(|here| here.depth.load(Relaxed) + here.frozen.load(Relaxed) > 0)
}

/// Returns `true` if a handler waits for the end of the calling thread's call of the library.
pub fn is_handler_due() -> bool {
    HERE.with(|here| here.is_deferred.load(Relaxed))
}

/// Returns `true` if the calling thread runs a signal handler of the program, which `defer` let
/// run.
pub fn is_in_handler() -> bool {
    HERE.with(is_handler_running)
}

/// Forgets a handler that has left by longjmp(3), when this function's frame lies where the
/// handler's was. (A handler on an alternate stack above this one looks as if it still ran.)
#[cold]
fn is_handler_running(here: &Here) -> bool {
    let deepest = 0u8;
    let runs = (&raw const deepest).addr() < here.handler.load(Relaxed);
    if !runs {
        here.handler.store(0, Relaxed);
    }
    runs
}

/// Runs a part of a call whose sleeps end with `EINTR` when a handler has to run. The part must
/// hold no resource that it cannot release.
pub fn interruptible<T>(part: impl FnOnce() -> T) -> T {
    HERE.with(|here| here.is_interruptible.store(true, Relaxed));
    let value = part();
    HERE.with(|here| here.is_interruptible.store(false, Relaxed));
    value
}

/// Runs a part of a call that returns a number of taken items. While the part runs,
/// [`thread::ALL_BUT_FAULTS`] are blocked, except where it sleeps under `mask`. If the part
/// succeeds, signals that `mask` permits are let in at least once, even if it did not sleep, as in
/// pselect(2). The handlers of these signals run at the end of the call.
///
/// # Errors
/// `EINTR`: a handler has to run, and `part` took nothing. The errors of `part`.
pub fn masked(mask: u64, part: impl FnOnce() -> Result<i64, Errno>) -> Result<i64, Errno> {
    HERE.with(|here| {
        let own = thread::swap_signal_mask(thread::ALL_BUT_FAULTS);
        if here.is_deferred.load(Relaxed) {
            return Err(Errno::INTR); // the deferred signal blocked all signals already
        }
        let masked = Masked { here, own, mask };
        let mut result = part();
        if let Ok(taken) = result
            && poll::ppoll(-1, 0, Deadline::NOW, Some(&mask)) == Err(Errno::INTR)
            && taken == 0
        {
            result = Err(Errno::INTR);
        }
        drop(masked);
        result
    })
}

/// Restores the thread's own mask on drop, or at the end of the call if a handler is deferred.
struct Masked<'a> {
    here: &'a Here,
    own: u64,
    mask: u64,
}

impl Drop for Masked<'_> {
    fn drop(&mut self) {
        if self.here.is_deferred.load(Relaxed) {
            self.here.mask.store(self.own, Relaxed);
            self.here.wait_mask.store(self.mask, Relaxed);
        } else {
            thread::swap_signal_mask(self.own);
        }
    }
}

/// In an [`interruptible`] part, a signal that is deferred before the kernel begins the call writes
/// `instead` to `escape`, which makes the call return at once.
///
/// # Errors
/// `EINTR`: a handler has to run. The errors of `call`.
pub(crate) fn sleep<T>(
    escape: *mut u64,
    instead: u64,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    HERE.with(|here| {
        if !here.is_interruptible.load(Relaxed) {
            return call();
        }
        here.instead.store(instead, Relaxed);
        here.escape.store(escape, Relaxed);
        compiler_fence(SeqCst);
        let slept = if here.is_deferred.load(Relaxed) { Err(Errno::INTR) } else { call() };
        compiler_fence(SeqCst);
        here.escape.store(core::ptr::null_mut(), Relaxed);
        slept
    })
}

/// The treatment of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The signal arrives again at the end of the call.
    Deferred,
    /// The handler runs now. When the handler returns, the caller passes this number to
    /// [`handled`].
    Now(u32),
}

/// Decides, in a signal's handler, whether the program's handler runs now. `info` is the signal's
/// `siginfo_t`; `mask` is the thread's mask after the handler returns.
///
/// # Safety
/// Both pointers are the ones that the kernel gave to the calling handler.
pub unsafe fn defer(signal: i32, info: *const i32, mask: *mut u64) -> Arrival {
    HERE.with(|here| {
        let depth = here.depth.load(Relaxed);
        // SAFETY: a siginfo_t begins with number, errno and code.
        let code = unsafe { info.add(2).read() };
        let waits = depth > 0 && !mistake::makes(Mistake::HandleAtOnce);
        if waits && !is_fault(signal, code) {
            // Blocks the signal itself, too: with SA_NODEFER it is not blocked in its handler.
            thread::swap_signal_mask(thread::ALL_BUT_FAULTS | bit(signal));
            thread::signal_again(signal, info);
            // SAFETY: as promised. If handlers nest, the one that interrupted the call stores its
            // mask last.
            unsafe {
                here.mask.store(mask.read(), Relaxed);
                mask.write(mask.read() | thread::ALL_BUT_FAULTS | bit(signal));
            }
            here.is_deferred.store(true, Relaxed);
            let escape = here.escape.load(Relaxed);
            if !escape.is_null() {
                // SAFETY: `sleep` is running on this thread, and the word belongs to its caller.
                unsafe { escape.write_volatile(here.instead.load(Relaxed)) };
            }
            return Arrival::Deferred;
        }
        // A recorded handler that is not below this one on the stack has left by longjmp(3).
        if here.handler.load(Relaxed) <= mask.addr() {
            here.handler.store(mask.addr(), Relaxed);
        }
        here.frozen.store(here.frozen.load(Relaxed) + depth, Relaxed);
        here.depth.store(0, Relaxed);
        Arrival::Now(depth)
    })
}

/// Records that a handler has returned. `depth` is the number that [`defer`] returned for `mask`.
pub fn handled(depth: u32, mask: *const u64) {
    HERE.with(|here| {
        if here.handler.load(Relaxed) == mask.addr() {
            here.handler.store(0, Relaxed);
        }
        here.frozen.store(here.frozen.load(Relaxed) - depth, Relaxed);
        here.depth.store(depth, Relaxed);
    });
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Returns `true` if an instruction of the thread itself has raised the signal, or if it is
/// SIGABRT.
fn is_fault(signal: i32, code: i32) -> bool {
    signal == libc::SIGABRT || (thread::ALL_BUT_FAULTS & bit(signal) == 0 && code > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{futex, time::Deadline};
    use core::sync::atomic::AtomicUsize;

    static HANDLED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn arrives(signal: i32, info: *const i32, context: *mut libc::ucontext_t) {
        // SAFETY: the context is the kernel's.
        let mask = unsafe { (&raw mut (*context).uc_sigmask).cast() };
        // SAFETY: as above.
        if let Arrival::Now(depth) = unsafe { defer(signal, info, mask) } {
            assert!(is_in_handler());
            HANDLED.fetch_add(1, Relaxed);
            handled(depth, mask);
        }
    }

    fn install(signal: i32) -> impl Fn() -> usize {
        // SAFETY: all-zero is a valid action.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = arrives as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        // SAFETY: a live action whose handler is made for signals.
        unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
        move || {
            let before = HANDLED.load(Relaxed);
            thread::send_signal(thread::thread_id(), signal);
            HANDLED.load(Relaxed) - before
        }
    }

    // One test, because the count belongs to the process and the signals to each thread.
    #[test]
    #[cfg_attr(miri, ignore = "signals")]
    fn handlers_run_when_the_outermost_call_ends_and_interrupt_its_sleep() {
        let raise = install(libc::SIGUSR1);
        let mask = || thread::swap_signal_mask(0);
        thread::swap_signal_mask(0);
        assert_eq!(raise(), 1, "outside at once");
        let word = AtomicU32::new(0);
        let wait = || futex::wait(&word, 0, Deadline::after_ns(1_000_000));
        let outer = Inside::enter();
        let inner = Inside::enter();
        let before = HANDLED.load(Relaxed);
        assert_eq!((raise(), raise()), (0, 0));
        drop(inner);
        assert_eq!(HANDLED.load(Relaxed), before, "the outer call goes on");
        assert_eq!(interruptible(wait), Err(Errno::INTR), "deferred before the sleep");
        assert_eq!(wait(), Err(Errno::TIMEDOUT), "what cannot be interrupted sleeps");
        drop(outer);
        assert_eq!(HANDLED.load(Relaxed), before + 1, "two of one number are one, as ever");
        assert_eq!(mask(), 0, "the mask is back");

        assert!(!is_interrupted() && !is_in_handler());
        waits_with_a_mask_let_in_what_it_says(&raise);
    }

    fn waits_with_a_mask_let_in_what_it_says(raise: &impl Fn() -> usize) {
        let own = 1 << (libc::SIGUSR1 - 1);
        thread::swap_signal_mask(own);
        let before = HANDLED.load(Relaxed);
        let wait = |mask, taken, answer| {
            let call = Inside::enter();
            let handled = HANDLED.load(Relaxed);
            assert_eq!(masked(mask, || Ok(taken)), answer);
            assert_eq!(HANDLED.load(Relaxed), handled, "not in the call");
            drop(call);
            assert_eq!(thread::swap_signal_mask(own), own, "the mask is back");
            HANDLED.load(Relaxed) - before
        };
        assert_eq!(raise(), 0, "blocked");
        assert_eq!(wait(own, 0, Ok(0)), 0, "kept out");
        assert_eq!(wait(0, 0, Err(Errno::INTR)), 1);
        assert_eq!(wait(0, 0, Ok(0)), 1, "there is none any more");
        assert_eq!(raise(), 0);
        assert_eq!(wait(0, 3, Ok(3)), 2, "what was taken is said");
        thread::swap_signal_mask(0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "frames lie anywhere")]
    fn a_handler_that_does_not_return_is_forgotten() {
        #[inline(never)]
        fn enter_one() {
            let (info, mut frame) = ([0; 32], [0u64; 512]);
            // SAFETY: both are live locals.
            let arrival = unsafe { defer(libc::SIGUSR1, info.as_ptr(), frame.as_mut_ptr()) };
            assert_eq!(arrival, Arrival::Now(0));
            assert!(is_in_handler());
        }
        enter_one();
        assert!(!is_in_handler());
        enter_one();
        drop(Inside::enter());
        assert_eq!(HERE.with(|here| here.handler.load(Relaxed)), 0, "by any call");
    }

    /// The signal arrives after the check of `sleep` and before the kernel has begun the call.
    #[test]
    #[cfg_attr(miri, ignore = "signals")]
    fn a_signal_on_the_way_to_sleep_makes_it_short() {
        let raise = install(libc::SIGUSR2);
        thread::swap_signal_mask(0);
        let call = Inside::enter();
        let mut seconds = 1000;
        let escape = &raw mut seconds;
        let slept = interruptible(|| {
            sleep(escape, 0, || {
                raise();
                // SAFETY: a live local.
                Ok(unsafe { escape.read_volatile() })
            })
        });
        assert_eq!(slept, Ok(0));
        drop(call);
    }
}
