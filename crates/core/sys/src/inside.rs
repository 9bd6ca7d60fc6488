//! Signal handlers of the program run between calls of the library, never in one.
//!
//! A call of the library is to behave like a system call: whatever a handler does, it must not do
//! it on top of a lock that the interrupted call holds. A handler may end the process, which waits
//! for requests, or wait for one of them itself.
//!
//! So a thread counts the calls it is in ([`Inside`]). A signal that arrives in one is sent to the
//! same thread again and kept blocked, with all others, until the call is over
//! ([`defer`]); a handler then runs in the program's own frame. A call that sleeps is interrupted
//! by that, as a system call is ([`interruptible`]), also when the signal arrives just before it
//! falls asleep: `sleep` shows what must be written for the coming system call to return at once.
//! A wait with a signal mask of its own lets signals in where it sleeps, and nowhere else
//! ([`masked`]); their handlers, too, run when the call is over, under that mask.
//!
//! A handler may leave by longjmp(3) or end its thread. A deferred one has no call below it then;
//! one of a fault leaves the call below it for good, with whatever that holds.
//!
//! Everything here is of one thread and its signal handlers: relaxed atomics, and an order that
//! only the compiler has to keep.

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

/// What a thread and the handlers that interrupt it know of its calls of the library.
struct Here {
    /// Calls on the stack.
    depth: AtomicU32,
    /// A signal waits for their end, when `mask` is the thread's again.
    is_deferred: AtomicBool,
    mask: AtomicU64,
    /// After that, those that this mask of a wait keeps out stay out, and others come in.
    wait_mask: AtomicU64,
    /// The call may be interrupted where it sleeps.
    is_interruptible: AtomicBool,
    /// What makes a sleep short that has not begun: where to write, and what.
    escape: AtomicPtr<u64>,
    instead: AtomicU64,
    /// Where the outermost handler that runs has its frame; 0: none does.
    handler: AtomicUsize,
    /// Calls on the stack below a handler of a fault.
    frozen: AtomicU32,
}

const KEEPS_ALL_OUT: u64 = u64::MAX;

thread_local! {
    // Without a destructor: there is nothing to register, and it can be used to the very end.
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

/// A call of the library, for as long as this lives: handlers wait.
#[must_use]
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Begins a call. Calls may nest.
    #[inline]
    pub fn enter() -> Inside {
        HERE.with(|here| {
            here.depth.store(here.depth.load(Relaxed) + 1, Relaxed);
            if here.handler.load(Relaxed) != 0 {
                is_handler_running(here); // or else forgets it, before a deeper call could not tell
            }
        });
        compiler_fence(SeqCst);
        Inside(PhantomData)
    }

    /// Ends a call whose beginning was forgotten, as dropping it does.
    pub fn leave() {
        drop(Inside(PhantomData));
    }
}

impl Drop for Inside {
    /// Ends the call; handlers that waited for that run now, and may end the thread: what began the
    /// call has nothing left to drop but this, and `extern "C-unwind"` where C calls it.
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

/// Gives the thread its mask back; the kernel delivers before that returns.
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

/// Tells whether the calling thread is in a call of the library, or in a handler on top of one: of
/// a fault, or one that was installed past the C library.
pub fn is_interrupted() -> bool {
    HERE.with(|here| here.depth.load(Relaxed) + here.frozen.load(Relaxed) > 0)
}

/// Returns `true` if a handler waits for the end of the calling thread's call of the library.
pub fn is_handler_due() -> bool {
    HERE.with(|here| here.is_deferred.load(Relaxed))
}

/// Tells whether the calling thread is in a handler.
pub fn is_in_handler() -> bool {
    HERE.with(is_handler_running)
}

/// Forgets a handler that has left by longjmp(3): the stack has grown back over its frame. (On a
/// stack of its own that lies above this one it is not distinguishable from one that runs.)
#[cold]
fn is_handler_running(here: &Here) -> bool {
    let deepest = 0u8;
    let runs = (&raw const deepest).addr() < here.handler.load(Relaxed);
    if !runs {
        here.handler.store(0, Relaxed);
    }
    runs
}

/// Runs a part of a call that ends with `EINTR` when a handler has to run: it holds nothing that
/// must not be released.
pub fn interruptible<T>(part: impl FnOnce() -> T) -> T {
    HERE.with(|here| here.is_interruptible.store(true, Relaxed));
    let value = part();
    HERE.with(|here| here.is_interruptible.store(false, Relaxed));
    value
}

/// Runs a part of a call, which takes something, with all signals kept away but where it sleeps
/// under `mask`. What that mask lets in comes in at least once, also when there was no need to
/// sleep, as in pselect(2) and its kin; handlers run at the end of the call.
///
/// # Errors
/// `EINTR`: a handler has to run, and nothing was taken. Those of `part`.
pub fn masked(mask: u64, part: impl FnOnce() -> Result<i64, Errno>) -> Result<i64, Errno> {
    HERE.with(|here| {
        let own = thread::swap_signal_mask(thread::ALL_BUT_FAULTS);
        if here.is_deferred.load(Relaxed) {
            return Err(Errno::INTR); // which has kept all away before
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

/// Gives the thread its own mask back: here, or at the end of the call if handlers wait for that.
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

/// Makes a system call that sleeps. A signal that is deferred before the kernel has begun with it
/// writes `instead` to `escape`, which makes the call return at once.
///
/// # Errors
/// `EINTR`: a handler has to run. Those of `call`.
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

/// What becomes of a signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It comes again at the end of the call.
    Deferred,
    /// Its handler runs now, and [`handled`] gets this number when that returns.
    Now(u32),
}

/// Decides about a signal, in its handler: `info` is its `siginfo_t`, `mask` that of the thread
/// when the handler returns.
///
/// # Safety
/// Both are what the kernel has given to the handler that calls this.
pub unsafe fn defer(signal: i32, info: *const i32, mask: *mut u64) -> Arrival {
    HERE.with(|here| {
        let depth = here.depth.load(Relaxed);
        // SAFETY: a siginfo_t begins with number, errno and code.
        let code = unsafe { info.add(2).read() };
        let waits = depth > 0 && !mistake::makes(Mistake::HandleAtOnce);
        if waits && !is_fault(signal, code) {
            // Also its own signal, which a handler may have left unblocked.
            thread::swap_signal_mask(thread::ALL_BUT_FAULTS | bit(signal));
            thread::signal_again(signal, info);
            // SAFETY: as promised. The last to write is the handler that has interrupted the call.
            unsafe {
                here.mask.store(mask.read(), Relaxed);
                mask.write(mask.read() | thread::ALL_BUT_FAULTS | bit(signal));
            }
            here.is_deferred.store(true, Relaxed);
            let escape = here.escape.load(Relaxed);
            if !escape.is_null() {
                // SAFETY: `sleep` is running on this thread, and what it shows is its caller's.
                unsafe { escape.write_volatile(here.instead.load(Relaxed)) };
            }
            return Arrival::Deferred;
        }
        // One that has not got this one on top of it has left by longjmp(3).
        if here.handler.load(Relaxed) <= mask.addr() {
            here.handler.store(mask.addr(), Relaxed);
        }
        here.frozen.store(here.frozen.load(Relaxed) + depth, Relaxed);
        here.depth.store(0, Relaxed);
        Arrival::Now(depth)
    })
}

/// Says that a handler has returned: [`defer`] has said `depth` when it got `mask`.
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

/// Tells whether an instruction of the thread itself has raised the signal, which cannot wait; nor
/// does abort(3).
fn is_fault(signal: i32, code: i32) -> bool {
    signal == libc::SIGABRT || (thread::ALL_BUT_FAULTS & bit(signal) == 0 && code > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{futex, time::Deadline};
    use core::sync::atomic::AtomicUsize;

    static HANDLED: AtomicUsize = AtomicUsize::new(0);

    /// As the preload library's.
    extern "C" fn arrives(signal: i32, info: *const i32, context: *mut libc::ucontext_t) {
        // SAFETY: as the kernel has given it.
        let mask = unsafe { (&raw mut (*context).uc_sigmask).cast() };
        // SAFETY: as above.
        if let Arrival::Now(depth) = unsafe { defer(signal, info, mask) } {
            assert!(is_in_handler());
            HANDLED.fetch_add(1, Relaxed);
            handled(depth, mask);
        }
    }

    /// Installs it for a signal of the test's own; returns a function that raises it here.
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

    // One test: the count is of the process, and the signals of each thread.
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

    /// As by longjmp(3).
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

    /// The signal arrives when `sleep` has looked, and the kernel has not begun.
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
