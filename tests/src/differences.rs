//! Two tables of answers, held against each other.

use std::fmt::Write;

/// The lines that are not the same, one below the other; those that begin as one of `allowed` may
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
