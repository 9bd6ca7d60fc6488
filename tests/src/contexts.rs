//! Cases of the program `lifecycle` that must succeed with nowait in every environment.

use crate::program::Program;
use crate::scratch::Scratch;
use crate::subject::Subject;

/// Cases about contexts. Cases about exit(3) and execve(2) are not among them.
pub const CASES: &[&str] = &[
    "destroy-in-flight",
    "destroy-poll",
    "destroy-wakes",
    "thread-exit",
    "fork",
    "eventfd",
    "poll",
    "poll-cancel",
    "stream-cancel",
    "stream-turns",
    "pipe",
    "shared",
    "waiters",
];

/// Runs a case of a program with the path of a file that the case may use. Demands that the case
/// succeeds and that the program has loaded the library of `subject`.
pub fn run(subject: Subject, program: Program, case: &str) {
    let scratch = Scratch::new(case);
    subject.assert_loaded(&program.arg(case).arg(scratch.file("file")).succeed());
}
