//! Checks rules about lines: their width, their number, the first line of a file, and no unfinished
//! work.

use super::Finding;
use super::source::{Source, words};

const COLUMNS_MAX: usize = 100;
const LINES_MAX: usize = 700;

/// Marks of unfinished work, in pieces so that the check does not find them in this file.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Documents whose lines must fit into 100 columns, because they are read beside the code.
const BROKEN_DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Rows of tables may be wider, and lines of a document with a link.
pub(super) fn columns(source: &Source, findings: &mut Vec<Finding>) {
    if source.extension() == "md" && !BROKEN_DOCUMENTS.contains(&source.path.as_str()) {
        return;
    }
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        let row = line.trim_start_matches(['/', '!', ' ']).starts_with('|');
        let link = source.extension() == "md" && (line.contains("](") || line.contains("://"));
        if columns > COLUMNS_MAX && !row && !link {
            let advice = format!("{columns} columns, at most {COLUMNS_MAX}: break the line");
            findings.push(source.finding_on(index + 1, advice));
        }
    }
}

pub(super) fn length(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.text.lines().count();
    if source.is_code() && lines > LINES_MAX {
        let advice = format!("{lines} lines, at most {LINES_MAX}: split the file by its nouns");
        findings.push(source.finding_on(lines, advice));
    }
}

pub(super) fn module_comment(source: &Source, findings: &mut Vec<Finding>) {
    let first = source.text.lines().next().unwrap_or_default();
    if source.is_rust() && !first.starts_with("//! ") {
        findings.push(source.finding_on(1, "open the file with a `//!` line that says what it is"));
    }
}

pub(super) fn unfinished(source: &Source, findings: &mut Vec<Finding>) {
    for (offset, word) in words(&source.text) {
        if UNFINISHED.contains(&word) {
            let advice = format!("`{word}`: finish it, or open an issue and remove the mark");
            findings.push(source.finding(offset, advice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_text;
    use super::*;

    #[test]
    fn a_wide_line_is_caught_and_a_table_row_is_not() {
        let wide = format!("//! ok\n// {}\n", "x".repeat(98));
        let found = check_text(columns, "crates/a/src/lib.rs", &wide);
        assert_eq!(found[0].line, 2);
        assert_eq!(check_text(columns, "ARCHITECTURE.md", &format!("| {}\n", "x".repeat(120))), []);
        assert_eq!(check_text(columns, "a.rs", &format!("//! | {}\n", "x".repeat(120))), []);
        assert_eq!(check_text(columns, "a.rs", &"é".repeat(100)), []);
    }

    #[test]
    fn a_long_file_is_caught() {
        let long = "//! x\n".repeat(LINES_MAX + 1);
        assert_eq!(check_text(length, "a.rs", &long).len(), 1);
        assert_eq!(check_text(length, "a.rs", &long[6..]), []);
        assert_eq!(check_text(length, "Cargo.toml", &long), []);
    }

    #[test]
    fn a_file_without_a_purpose_is_caught() {
        assert_eq!(check_text(module_comment, "a.rs", "use std::fs;\n").len(), 1);
        assert_eq!(check_text(module_comment, "a.rs", "//! Reads.\n"), []);
        assert_eq!(check_text(module_comment, "a.c", "/* x */\n"), []);
    }

    #[test]
    fn unfinished_work_is_caught_in_comments_too() {
        for mark in UNFINISHED {
            assert_eq!(check_text(unfinished, "a.rs", &format!("// {mark}: later\n")).len(), 1);
        }
        assert_eq!(check_text(unfinished, "a.rs", concat!("// XX", "XX\n")), []);
    }
}
