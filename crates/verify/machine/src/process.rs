//! A run in a process of its own, as the frontends for C programs need: their shared state belongs
//! to the process, their threads run until the process ends, and a program may end the process at
//! any time.

use crate::{
    interpose::with_machine,
    schedule::{Machine, Report, stop},
    steps::{Step, Steps},
};
use nowait_sim::Failure;
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::FromRawFd,
};

/// Time limit of a run by the real clock; then SIGALRM ends the process.
const SECONDS_MAX: u32 = 120;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Another number changes the draws of the same seed, except the run's rates.
    pub(crate) order: u64,
    pub(crate) only: Option<Vec<Step>>,
}

#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) steps: Vec<Step>,
}

/// Runs `main` and the threads that it starts on a machine, in a child process. The run ends when
/// all threads have ended, or one calls [`exit`].
///
/// # Errors
/// The failures of [`Machine::run`]; or the child ends in another way.
pub fn run(seed: u64, main: impl FnOnce() + Send + 'static) -> Result<Report, Failure> {
    Plan::of(seed).run(main).map_err(|failed| failed.failure)
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Plan {
        Plan { seed, order: 0, only: None }
    }

    pub(crate) fn run(self, main: impl FnOnce() + Send + 'static) -> Result<Report, Failed> {
        let mut ends = [0; 2];
        // SAFETY: room for two.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0, "a pipe");
        // SAFETY: both were just made, and are this function's.
        let [mut from, to] = ends.map(|end| unsafe { File::from_raw_fd(end) });
        let seed = self.seed;
        // SAFETY: the child uses nothing that another thread of this process may have locked.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "a process");
        if child == 0 {
            // SAFETY: no memory is involved.
            unsafe { libc::alarm(SECONDS_MAX) };
            stay_on_this_processor();
            drop(from);
            let told_to = to.try_clone().expect("a descriptor");
            let steps = Steps { only: self.only, told_to: Some(told_to) };
            tell(to, &Machine::run_to_exit(seed, self.order, steps, main));
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        drop(to);
        let mut told = Vec::new();
        let _ = from.read_to_end(&mut told);
        let mut status = 0;
        // SAFETY: a live local.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        heard(seed, &String::from_utf8_lossy(&told), status)
    }
}

/// Binds this thread, and the threads that it starts later, to the current processor. Waking the
/// next thread on another processor would cost more than the thread's turn.
fn stay_on_this_processor() {
    // SAFETY: no memory is involved.
    let here = unsafe { libc::sched_getcpu() };
    // SAFETY: plain data, for which zeroes are valid.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the number of a processor. If the call fails, runs are slower.
    unsafe {
        libc::CPU_SET(here.max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Separates the parts of the child's messages; no part contains this character.
pub(crate) const MARK: char = '\0';

fn tell(mut to: File, ended: &Result<Report, Failure>) {
    let told = match ended {
        Ok(Report { calls, switches, ns, hash }) => {
            format!("ran{MARK}{calls}{MARK}{switches}{MARK}{ns}{MARK}{hash}")
        }
        Err(failure) => format!("failed{MARK}{}{MARK}{}", failure.message, failure.trace),
    };
    to.write_all(told.as_bytes()).expect("the parent reads it");
}

fn heard(seed: u64, told: &str, status: i32) -> Result<Report, Failed> {
    let mut steps = Vec::new();
    let mut parts = &told.split(MARK).collect::<Vec<_>>()[..];
    while let ["step", thread, number, text, rest @ ..] = parts {
        let (thread, text) = ((*thread).to_owned(), (*text).to_owned());
        steps.push(Step { thread, number: number.parse().unwrap_or(0), text });
        parts = rest;
    }
    let number = |text: &str| text.parse().ok();
    let (message, trace) = match parts {
        ["ran", numbers @ ..] => {
            let numbers: Vec<u64> = numbers.iter().copied().filter_map(number).collect();
            match numbers[..] {
                [calls, switches, ns, hash] => return Ok(Report { calls, switches, ns, hash }),
                _ => ("the process has ended in the middle of a word".to_owned(), ""),
            }
        }
        ["failed", message, trace] => ((*message).to_owned(), *trace),
        _ => (format!("the process has ended with status {status:#x}"), ""),
    };
    if status == libc::SIGALRM {
        // Without steps the shrinker tries no smaller runs: each could take as long.
        steps.clear();
    }
    Err(Failed { failure: Failure { seed, message, trace: trace.to_owned() }, steps })
}

/// Ends the run as exit_group(2) ends a process: no thread continues. Panics if the thread is on no
/// machine.
pub fn exit() -> ! {
    with_machine(|world| {
        world.note(|| "the process ends".to_owned());
        world.ends(Ok(()));
    });
    stop()
}

/// Returns the content of an existing file as other processes would read it.
pub fn contents(path: &str) -> Vec<u8> {
    with_machine(|world| world.contents(path))
}
