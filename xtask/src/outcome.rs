//! Counts the results of tests in the output of `cargo test`.

use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Outcome {
    pub(crate) fn count(&mut self, line: &str) {
        let Some((_, numbers)) = line.split_once("test result: ") else { return };
        let number = |word: &str| {
            let mut fields = numbers.split(['.', ';']).map(str::trim);
            fields.find_map(|field| field.strip_suffix(word)?.parse().ok()).unwrap_or(0)
        };
        let [passed, failed, skipped] = [" passed", " failed", " ignored"].map(number);
        self.add(Outcome { passed, failed, skipped });
    }

    pub(crate) fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The lines that name failed tests, and the first lines of the output of each failed test.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pub(crate) lines: Vec<String>,
    wanted: usize,
}

impl Failures {
    pub(crate) fn note(&mut self, line: &str) {
        const WANTED: usize = 16;
        // cargo's line, or pytest's
        let names_one = line.starts_with("test ") && line.ends_with(" FAILED")
            || line.starts_with("FAILED ") && line.contains("::");
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.wanted = WANTED;
        } else if line == "failures:" || line == "stack backtrace:" {
            self.wanted = 0;
        }
        if self.wanted > 0 || names_one {
            self.wanted = self.wanted.saturating_sub(1);
            self.lines.push(line.to_owned());
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_named_with_the_first_lines_of_its_reason() {
        let mut failures = Failures::default();
        let reason = ["---- a stdout ----", "thread 'a' panicked:", "1 != 2", "stack backtrace:"];
        let output = ["test a ... FAILED", "test b ... ok", "failures:", "noise"];
        let end = ["  0: frame", "failures:", "    a"];
        output.iter().chain(&reason).chain(&end).for_each(|line| failures.note(line));
        assert_eq!(failures.lines, [&output[..1], &reason[..3]].concat());
        failures.note("---- b stdout ----");
        (0..100).for_each(|_| failures.note("more"));
        assert_eq!(failures.lines.len(), 4 + 16);
        failures.note("FAILED tests/test_a.py::test_b - AssertionError");
        assert_eq!(failures.lines.len(), 4 + 16 + 1);
    }

    #[test]
    fn closing_lines_add_up_and_other_lines_do_not_count() {
        let closing = "test result: FAILED. 12 passed; 2 failed; 3 ignored; 0 measured; \
                       1 filtered out; finished in 0.01s";
        let mut outcome = Outcome::default();
        for line in ["test passes ... ok", closing, closing] {
            outcome.count(line);
        }
        assert_eq!(outcome, Outcome { passed: 24, failed: 4, skipped: 6 });
        assert_eq!(outcome.to_string(), "24 passed, 4 failed, 6 skipped");
    }
}
