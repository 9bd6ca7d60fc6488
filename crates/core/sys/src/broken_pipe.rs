//! The disposition of SIGPIPE with which this process was executed.
//!
//! Rust's runtime ignores SIGPIPE before `main`, and a [`Command`] sets the default in the program
//! that it executes. `nowait run` must pass the original disposition on: systemd and other
//! supervisors start services with SIGPIPE ignored.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{os::unix::process::CommandExt, process::Command};

static IGNORED: AtomicBool = AtomicBool::new(false);

/// Notes the disposition. The program refers to this function from its section `.init_array`, whose
/// functions run before Rust's runtime changes the disposition.
pub extern "C" fn note() {
    let mut action = core::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call changes no disposition, and fills the live local if it succeeds.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, core::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    };
    IGNORED.store(ignored, Relaxed);
}

/// Lets the program that `command` executes ignore SIGPIPE if [`note`] found it ignored.
pub fn pass_on(command: &mut Command) {
    let ignore = || {
        // SAFETY: no code of this process runs for an ignored signal.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        Ok(())
    };
    if IGNORED.load(Relaxed) {
        // SAFETY: the closure makes one async-signal-safe call. It runs after `Command` has set the
        // default.
        unsafe { command.pre_exec(ignore) };
    }
}
