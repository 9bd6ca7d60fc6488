//! Reports skipped tests, of this crate and of the crates above it, so that no skip is silent.

use std::{fs::OpenOptions, io::Write};

/// Prints `skipped: <test>: <why>`, and appends this line to the file that the environment variable
/// `NOWAIT_SKIPS` names, if it is set.
pub fn note_skip(test: &str, why: &str) {
    let line = print_skip(test, why);
    let Ok(file) = std::env::var("NOWAIT_SKIPS") else { return };
    let mut file = OpenOptions::new().create(true).append(true).open(&file).expect(&file);
    file.write_all(line.as_bytes()).expect("NOWAIT_SKIPS is writable");
}

/// Notes a skip under the name of the calling thread: the test harness gives a test's thread the
/// name of the test.
pub fn note_skip_here(why: &str) {
    note_skip(std::thread::current().name().unwrap_or("unnamed"), why);
}

/// Prints a skip and appends it to no file, for tests that are skipped on every machine. Returns
/// the line.
pub fn print_skip(test: &str, why: &str) -> String {
    let line = format!("skipped: {test}: {why}\n");
    // Not by `println!`: the test harness hides the output of `println!` if the test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    line
}
