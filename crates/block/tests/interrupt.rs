//! Signals during `reap`.

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use nowait_block::{
    BlockBackend,
    backends::{
        aio::Kaio,
        mem::Mem,
        threads::{Threads, ThreadsConfig},
        uring::Uring,
    },
    conformance::note_skip,
};
use nowait_sys::{Errno, thread, time::Deadline, uring::Issuer};

extern "C" fn nothing(_signal: i32) {}

fn handle_signal() {
    // SAFETY: zeroes are a valid sigaction: no flags, so that calls are not restarted.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
    // SAFETY: the action is a live local; the handler does nothing.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()) };
}

/// Signals this thread until its reap has returned.
fn reap_is_interrupted(backend: &dyn BlockBackend) {
    let (me, returned) = (thread::thread_id(), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !returned.load(SeqCst) {
                thread::send_signal(me, libc::SIGUSR1);
                std::thread::yield_now();
            }
        });
        let result = backend.reap(&mut Vec::new(), 1, Deadline::NEVER);
        returned.store(true, SeqCst);
        result
    });
    assert_eq!(result, Err(Errno::INTR), "{}", backend.name());
}

#[test]
fn signal_ends_a_reap_that_has_nothing() {
    handle_signal();
    reap_is_interrupted(&Threads::new(ThreadsConfig::default()).unwrap());
    reap_is_interrupted(&Mem::new(0, 1, 1));
    for issuer in [Issuer::Any, Issuer::Single] {
        match Uring::new(8, issuer) {
            Ok(uring) => (0..10).for_each(|_| reap_is_interrupted(&uring)),
            Err(errno) => note_skip("signal_ends_a_reap_that_has_nothing", &errno.to_string()),
        }
    }
    match Kaio::new(8) {
        Ok(kaio) => (0..10).for_each(|_| reap_is_interrupted(&kaio)),
        Err(errno) => note_skip("signal_ends_a_reap_that_has_nothing", &errno.to_string()),
    }
}
