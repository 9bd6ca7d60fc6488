//! Skips of tests, of this crate and of those above it: never a silent pass.

use std::{fs::OpenOptions, io::Write};

/// Prints `skipped: <test>: <why>` and appends it to the file that `NOWAIT_SKIPS` names: the
/// machine lacks what the test needs.
pub fn note_skip(test: &str, why: &str) {
    let line = print_skip(test, why);
    let Ok(file) = std::env::var("NOWAIT_SKIPS") else { return };
    let mut file = OpenOptions::new().create(true).append(true).open(&file).expect(&file);
    file.write_all(line.as_bytes()).expect("NOWAIT_SKIPS is writable");
}

/// Notes a skip under the name of the running test, after which the harness names the thread.
pub fn note_skip_here(why: &str) {
    note_skip(std::thread::current().name().unwrap_or("unnamed"), why);
}

/// Prints a skip and does not count it: the test is skipped on every machine. Returns the line.
pub fn print_skip(test: &str, why: &str) -> String {
    let line = format!("skipped: {test}: {why}\n");
    // Straight to the descriptor: the test harness swallows `println!` of passing tests.
    let _ = std::io::stderr().write_all(line.as_bytes());
    line
}
