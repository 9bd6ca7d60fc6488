//! Ctrl-C, or the end of `--budget`, ends a measurement in order: the program abandons the current
//! run, removes test files without `--keep`, and reports the earlier runs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Failure, Result};

/// Only the signal handler sets this. It is a static because signals belong to the process.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A process makes only one measurement, so it has at most one deadline.
static DEADLINE: OnceLock<Instant> = OnceLock::new();

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Installs a handler that records SIGINT and SIGTERM, which would otherwise end the process.
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler = note as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Only the first call with a time counts.
pub fn stop_after(budget: Option<Duration>) {
    if let Some(deadline) = budget.and_then(|budget| Instant::now().checked_add(budget)) {
        DEADLINE.get_or_init(|| deadline);
    }
}

pub fn happened() -> bool {
    INTERRUPTED.load(Ordering::Relaxed) || is_late()
}

fn is_late() -> bool {
    DEADLINE.get().is_some_and(|deadline| Instant::now() >= *deadline)
}

pub(crate) fn reason() -> Option<&'static str> {
    happened().then(|| if is_late() { "--budget is over" } else { "interrupted" })
}

pub fn check() -> Result<()> {
    reason().map_or(Ok(()), |why| {
        Err(Failure::new(format!(
            "{why}; the test files have been removed, and reports are partial"
        )))
    })
}
