//! Counts the tests that said "skipped", against what is allowed.
//!
//! A test that cannot run here (no root, no loop device, a kernel without a call) appends a line
//! `skipped: TEST: REASON` to the file named by `NOWAIT_SKIPS`. A skip is never a pass: the number
//! in tests/skips.allowed is how many a full machine may have.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::process::{root, target};

/// The jobs that run tests which may skip themselves.
const JOBS: [&str; 2] = ["test", "random"];

/// Returns the file that the tests of a job write their skips to.
pub(crate) fn file(job: &str) -> PathBuf {
    debug_assert!(JOBS.contains(&job), "it would not be looked at");
    target().join(format!("skips-{job}.txt"))
}

/// Returns how many tests of a job wrote skips since its file was last removed.
pub(crate) fn count(job: &str) -> usize {
    tests(&read(job))
}

/// Prints the skips of the last runs; fails if there are more than tests/skips.allowed permits.
pub(crate) fn run() -> Result<()> {
    const LIMIT: &str = "tests/skips.allowed";
    let (text, limit) = (JOBS.map(read).concat(), fs::read_to_string(root().join(LIMIT))?);
    let (skips, allowed) = (lines(&text), allowed(&limit).context(LIMIT)?);
    skips.iter().for_each(|skip| println!("{skip}"));
    println!("{} skipped, {allowed} allowed", skips.len());
    let number = skips.len();
    ensure!(number <= allowed, "{number} tests were skipped, {LIMIT} permits {allowed}");
    Ok(())
}

fn read(job: &str) -> String {
    fs::read_to_string(file(job)).unwrap_or_default()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_start).filter(|line| line.starts_with("skipped:")).collect()
}

/// Counts the tests that skipped all or some of what they claim.
fn tests(text: &str) -> usize {
    // skipped: TEST: REASON, where TEST may hold `::`
    let names = lines(text).into_iter().filter_map(|line| line.split(": ").nth(1));
    names.collect::<BTreeSet<_>>().len()
}

/// Reads the number; empty lines and `#` comments do not count, and no number is 0.
fn allowed(text: &str) -> Result<usize> {
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().map_or(Ok(0), |number| number.trim().parse().context("not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_skips_twice_is_one_test() {
        let text = "skipped: a::b: no root\nnoise\n  skipped: a::b: no loop\nskipped: c: old\n";
        assert_eq!((lines(text).len(), tests(text)), (3, 2));
    }

    #[test]
    fn allowed_is_the_first_number() {
        assert_eq!(allowed("").unwrap(), 0);
        assert_eq!(allowed("# why\n\n3\n").unwrap(), 3);
        assert!(allowed("three").is_err());
    }
}
