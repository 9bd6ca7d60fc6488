//! Compares two tables of results.

use std::fmt::Write;

/// Returns the lines that differ, one below the other; lines with a prefix in `allowed` may differ.
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

/// Returns the results of the program `descriptors` on a kernel whose AIO reads timers. A kernel
/// that does not refuses the request there; nowait accepts it on every kernel.
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
