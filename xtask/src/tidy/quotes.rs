//! Checks quotations: the text that a document quotes from a file is in the file.
//!
//! A line `<!-- from crates/x/y.rs -->` in a document says that the block of code below it consists
//! of lines of that file, perhaps indented less. The tests compile that file, so the block stays
//! correct. Each block of Rust or C must have such a line.

use super::Finding;
use super::source::Source;
use crate::process;
use std::fs;

const MARK: &str = "<!-- from ";

const QUOTED: &[&str] = &["```rust", "```c"];

const COMPILED: &[&str] = &["/tests/", "/examples/", "/src/", "tests/"];

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if source.extension() != "md" {
        return;
    }
    let mut lines = source.text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if QUOTED.contains(&line) {
            let advice = "compile this: put it into a test or an example, and quote it from there";
            findings.push(source.finding_on(index + 1, advice));
        }
        let Some(rest) = line.strip_prefix(MARK) else { continue };
        let path = rest.trim_end_matches("-->").trim();
        if !COMPILED.iter().any(|folder| path.starts_with(folder) || path.contains(folder)) {
            let advice = format!("{path} is compiled by no test: quote from one that is");
            findings.push(source.finding_on(index + 1, advice));
        }
        let block: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .skip_while(|line| !line.starts_with("```"))
            .skip(1)
            .take_while(|line| !line.starts_with("```"))
            .collect();
        let text = fs::read_to_string(process::root().join(path)).unwrap_or_default();
        if !contains(&text, &block) {
            let advice = format!("{path} has no such lines: quote it as it is");
            findings.push(source.finding_on(index + 1, advice));
        }
    }
}

/// All lines of the block may have the same additional indentation in the text.
fn contains(text: &str, block: &[&str]) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let Some(first) = block.first() else { return false };
    let mut windows = lines.windows(block.len());
    !block.concat().is_empty()
        && windows.any(|window| {
            let Some(indent) = window[0].strip_suffix(first) else { return false };
            let is_same = |(line, quoted): (&&str, &&str)| match quoted.is_empty() {
                true => line.is_empty(),
                false => line.strip_prefix(indent) == Some(*quoted),
            };
            indent.trim().is_empty() && window.iter().zip(block).all(is_same)
        })
}

#[cfg(test)]
mod tests {
    use super::super::check_text;
    use super::*;

    fn findings_in(block: &str) -> usize {
        let text =
            format!("# A\n\n<!-- from xtask/src/tidy/quotes.rs -->\n```rust\n{block}\n```\n");
        check_text(check, "docs/a.md", &text).len()
    }

    #[test]
    fn a_quote_that_is_not_in_its_file_is_caught() {
        assert_eq!(findings_in("use super::source::Source;\nuse crate::process;"), 0);
        assert_eq!(findings_in("use super::source::Source;\nuse std::fs;"), 1);
        assert_eq!(findings_in(""), 1);
    }

    #[test]
    fn a_quote_may_be_indented_less_but_only_as_a_whole() {
        let text = "fn a() {\n    if b {\n\n        c();\n    }\n}\n";
        assert!(contains(text, &["if b {", "", "    c();", "}"]));
        assert!(contains(text, &["    if b {", "", "        c();"]));
        assert!(!contains(text, &["if b {", "", "c();"]));
        assert!(!contains(text, &["b {", "", "    c();"]));
    }

    #[test]
    fn code_that_no_test_compiles_is_caught() {
        for (canary, found) in [
            ("```rust\nlet a = 1;\n```\n", 1),
            ("```c\nint a;\n```\n", 1),
            ("<!-- from docs/c.md -->\n```c\n#include <nowait.h>\n```\n", 2),
            ("```python\na = 1\n```\n\n```\nplain\n```\n", 0),
        ] {
            assert_eq!(check_text(check, "docs/a.md", canary).len(), found, "{canary}");
        }
    }
}
