//! Quotations: the text that a document quotes from a file is in the file.
//!
//! A line `<!-- from crates/x/y.rs -->` in a document says that the block of code below it is
//! lines of that file, as they stand there: so it is compiled and tested, and cannot age.

use super::Finding;
use super::source::Source;
use crate::process;
use std::fs;

const MARK: &str = "<!-- from ";

/// Checks the blocks of code that name a file.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if source.extension() != "md" {
        return;
    }
    let mut lines = source.text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(rest) = line.strip_prefix(MARK) else { continue };
        let path = rest.trim_end_matches("-->").trim();
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

/// Whether the lines follow each other in the text.
fn contains(text: &str, block: &[&str]) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    !block.concat().is_empty() && lines.windows(block.len()).any(|window| window == block)
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
}
