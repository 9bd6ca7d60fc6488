//! Counts the tests that said "skipped", against what is allowed.
//!
//! A test that cannot run here (no root, no loop device, a kernel without a call) appends a line
//! `skipped: TEST: REASON` to the file named by `NOWAIT_SKIPS`. A skip is never a pass: the number
//! in tests/skips.allowed is how many a full machine may have.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::process::{self, Result};

/// The jobs that run tests which may skip themselves.
const JOBS: [&str; 2] = ["test", "random"];

/// Returns the file that the tests of a job write their skips to.
pub(crate) fn file(job: &str) -> PathBuf {
    debug_assert!(JOBS.contains(&job), "it would not be looked at");
    process::target().join(format!("skips-{job}.txt"))
}

/// Returns how many tests of a job wrote skips since its file was last removed.
pub(crate) fn count(job: &str) -> usize {
    tests(&read(job)).len()
}

/// Prints the skips of the last runs.
///
/// # Errors
/// There are more than tests/skips.allowed permits.
pub(crate) fn run() -> Result {
    let text = JOBS.map(read).concat();
    let allowed_text =
        fs::read_to_string(process::root().join("tests/skips.allowed")).unwrap_or_default();
    let (skips, allowed) = (lines(&text), allowed(&allowed_text)?);
    for skip in &skips {
        println!("{skip}");
    }
    println!("{} skipped, {allowed} allowed", skips.len());
    if skips.len() <= allowed {
        return Ok(());
    }
    let number = skips.len();
    Err(format!("{number} tests were skipped, tests/skips.allowed permits {allowed}"))
}

fn read(job: &str) -> String {
    fs::read_to_string(file(job)).unwrap_or_default()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.trim_start().starts_with("skipped:")).collect()
}

/// Names the tests that skipped all or some of what they claim.
fn tests(text: &str) -> BTreeSet<&str> {
    // skipped: TEST: REASON, where TEST may hold `::`
    lines(text).into_iter().filter_map(|line| line.trim_start().split(": ").nth(1)).collect()
}

/// Reads the number; empty lines and `#` comments do not count, and no number is 0.
fn allowed(text: &str) -> Result<usize> {
    let lines = text.lines().map(str::trim);
    let mut numbers = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(number) = numbers.next() else { return Ok(0) };
    number.parse().map_err(|_| format!("tests/skips.allowed: `{number}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_the_form_count() {
        assert_eq!(lines("skipped: a: no root\nnoise\n  skipped: b: no loop\n").len(), 2);
    }

    #[test]
    fn a_test_that_skips_twice_is_one_test() {
        let text = "skipped: a::b: no root\nskipped: a::b: no loop\nskipped: c: old kernel\n";
        assert_eq!(tests(text).len(), 2);
    }

    #[test]
    fn allowed_is_the_first_number() {
        assert_eq!(allowed(""), Ok(0));
        assert_eq!(allowed("# why\n\n3\n"), Ok(3));
        assert!(allowed("three").is_err());
    }
}
