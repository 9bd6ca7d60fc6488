//! Ctrl-C ends the measurement in order: fio is stopped and the test files are removed.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{BenchError, Result};

/// Set by the handler, and only ever read otherwise. Signals belong to the process, not to a value.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Notes SIGINT and SIGTERM from now on, instead of dying of them.
pub(crate) fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler = note as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Fails once the user has asked to stop.
pub(crate) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err(BenchError::failed("interrupted; the test files have been removed"));
    }
    Ok(())
}
