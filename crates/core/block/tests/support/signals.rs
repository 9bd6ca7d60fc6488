//! Interrupts a thread again and again by signals, as a debugger or a freezer would do.

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use nowait_sys::thread;
use std::sync::{Mutex, PoisonError};

pub(crate) extern "C" fn nothing(_signal: i32) {}

fn handle_signals(handler: extern "C" fn(i32)) {
    // SAFETY: zeroes are a valid sigaction: no flags, so that calls are not restarted.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // SAFETY: the action is a live local; the handlers do what a handler may.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()) };
}

/// Ends the sender also if the test fails: otherwise the scope would never end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// All threads of a process share the handler, so one call runs at a time.
pub(crate) fn under_signals<R>(handler: extern "C" fn(i32), run: impl FnOnce() -> R) -> R {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    handle_signals(handler);
    let (me, over) = (thread::thread_id(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(SeqCst) {
                thread::send_signal(me, libc::SIGUSR1);
                std::thread::yield_now();
            }
        });
        run()
    })
}
