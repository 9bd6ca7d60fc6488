//! Compares two tables of results.

use std::fmt::Write;

/// Returns the pairs of lines that differ, and a line if the tables have different lengths; empty
/// if nothing differs. A reference line that starts with the first text of a pair in `allowed` may
/// differ.
pub fn differences(reference: &str, ours: &str, allowed: &[(&str, &str)]) -> String {
    let is_allowed = |line: &str| allowed.iter().any(|(case, _)| line.starts_with(case));
    let mut text = String::new();
    for (expected, found) in reference.lines().zip(ours.lines()) {
        if expected != found && !is_allowed(expected) {
            let _ = writeln!(text, "  {expected}\n  {found}\n");
        }
    }
    let (expected, found) = (reference.lines().count(), ours.lines().count());
    if expected != found {
        let _ = writeln!(text, "{found} lines instead of {expected}");
    }
    text
}

/// Changes results of the program `descriptors` to those of a kernel whose AIO can read timerfds.
/// Other kernels refuse a read of a timerfd in io_submit; nowait accepts the read on every kernel.
pub fn with_timers_read(reference: &str) -> String {
    let taken = |line: &str| match line.contains(", for a timer: ") {
        true => line.replacen("read refused -22", "read -11", 1) + "\n",
        false => line.to_owned() + "\n",
    };
    reference.lines().map(taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refused_read_of_a_timer_is_told_otherwise() {
        let table = "close, for a timer: read refused -22, write refused -22, a=a*1\n\
            close, for a folder: read refused -22\n\
            a counter's number, for a timer: told 4096, told refused -22\n";
        let expected = table.replacen("read refused -22", "read -11", 1);
        assert_eq!(with_timers_read(table), expected);
        assert_eq!(with_timers_read(&expected), expected);
    }
}
