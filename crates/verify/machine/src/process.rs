//! A run that is a process of its own, as the faces for C programs need one: what they share is
//! the process's, their threads run to its end, and a program may end it at any time.

use crate::{
    interpose::with_machine,
    schedule::{Machine, Report, stop},
};
use nowait_sim::Failure;
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::FromRawFd,
};

/// How long a run may take before the system ends it, in seconds of the real clock.
const SECONDS_MAX: u32 = 120;

/// Runs `main` and the threads that it starts on a machine of its own, in a child of this process,
/// until all have ended or one calls [`exit`]. Nothing of the run is left here.
///
/// # Errors
/// Those of [`Machine::run`]; the child ended in another way.
///
/// # Panics
/// There are no descriptors or processes.
pub fn run(seed: u64, main: impl FnOnce() + Send + 'static) -> Result<Report, Failure> {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0, "a pipe");
    // SAFETY: both were just made, and are this function's.
    let [mut from, to] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    // SAFETY: the child uses nothing that another thread of this process may have locked.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process");
    if child == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::alarm(SECONDS_MAX) };
        drop(from);
        tell(to, &Machine::run_to_exit(seed, main));
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    drop(to);
    let mut told = String::new();
    let _ = from.read_to_string(&mut told);
    let mut status = 0;
    // SAFETY: a live local.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    heard(seed, &told).unwrap_or_else(|| {
        let message = format!("the process has ended with status {status:#x}");
        Err(Failure { seed, message, trace: String::new() })
    })
}

/// Separates what the child says; no message has it.
const MARK: char = '\0';

fn tell(mut to: File, ended: &Result<Report, Failure>) {
    let told = match ended {
        Ok(Report { calls, switches, ns, hash }) => {
            format!("ran{MARK}{calls}{MARK}{switches}{MARK}{ns}{MARK}{hash}")
        }
        Err(failure) => format!("failed{MARK}{}{MARK}{}", failure.message, failure.trace),
    };
    to.write_all(told.as_bytes()).expect("the parent reads it");
}

fn heard(seed: u64, told: &str) -> Option<Result<Report, Failure>> {
    let parts: Vec<&str> = told.split(MARK).collect();
    if let ["failed", message, trace] = parts[..] {
        return Some(Err(Failure { seed, message: message.to_owned(), trace: trace.to_owned() }));
    }
    let numbers: Vec<u64> = parts.iter().skip(1).filter_map(|it| it.parse().ok()).collect();
    match numbers[..] {
        [calls, switches, ns, hash] => Some(Ok(Report { calls, switches, ns, hash })),
        _ => None,
    }
}

/// Ends the run as exit_group(2) ends a process: no thread of it goes on.
///
/// # Panics
/// The thread is on no machine.
pub fn exit() -> ! {
    with_machine(|world| {
        world.note(|| "the process ends".to_owned());
        world.ends(Ok(()));
    });
    stop()
}

/// Returns what is in a file as other processes would read it, while no thread goes on.
///
/// # Panics
/// The thread is on no machine, or there is no such file.
pub fn contents(path: &str) -> Vec<u8> {
    with_machine(|world| world.contents(path))
}
