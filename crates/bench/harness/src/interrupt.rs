//! Ctrl-C ends the measurement in order: the run is given up, test files are removed, and what was
//! measured before is reported.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{BenchError, Result};

/// Set by the handler, and only ever read otherwise. Signals belong to the process, not to a value.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Notes SIGINT and SIGTERM from now on, instead of dying of them.
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler = note as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Returns `true` if the user has asked to stop.
pub fn happened() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Fails once the user has asked to stop.
pub fn check() -> Result<()> {
    if happened() {
        let what = "interrupted; the test files have been removed, and reports are partial";
        return Err(BenchError::failed(what));
    }
    Ok(())
}
