//! Checks the book: its list has every page, and pages link only to files in the book.
//!
//! rumdl checks that linked files and headings exist (`rumdl.toml`).

use std::fs;
use std::sync::LazyLock;

use regex_lite::Regex;

use super::Finding;
use super::source::{Source, mask_code};
use crate::pattern::regex;
use crate::process::root;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Documents outside `docs/` that are in the book, too.
const BESIDE: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

static LINK: LazyLock<Regex> = regex!(r"\]\(([^)#:]+)(?:#[^)]*)?\)");

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let is_in_book = |path: &str| path.starts_with("docs/") || BESIDE.contains(&path);
    let is_page = |source: &&Source| source.extension() == "md" && is_in_book(&source.path);
    let pages = || sources.iter().filter(is_page);
    let listed: Vec<String> = pages()
        .filter(|page| page.path == SUMMARY)
        .flat_map(|list| links(list).into_iter().map(|(_, path)| path))
        .collect();
    for page in pages() {
        for (offset, path) in links(page) {
            if !is_in_book(&path) {
                let advice = format!("{path} is not in the book: name it in backticks");
                findings.push(page.finding(offset, advice));
            }
        }
        if page.path != SUMMARY && !listed.contains(&page.path) {
            findings.push(page.finding_on(1, format!("no line of {SUMMARY} leads here: add one")));
        }
    }
}

fn links(page: &Source) -> Vec<(usize, String)> {
    let prose = mask_code(&page.text);
    let folder = root().join(&page.path).parent().expect("a folder of pages").to_path_buf();
    let found = LINK.captures_iter(&prose).filter_map(|link| {
        let file = fs::canonicalize(folder.join(&link[1])).ok()?;
        let file = file.strip_prefix(fs::canonicalize(root()).ok()?).ok()?;
        Some((link.get(0)?.start(), file.to_str()?.to_owned()))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let summary = "- [A](limits.md)\n- [B](../ARCHITECTURE.md)\n- [C](../CONTRIBUTING.md)\n";
        let beside = BESIDE.iter().map(|path| Source::new(path, ""));
        let sources = [Source::new(SUMMARY, summary), Source::new("docs/limits.md", text)];
        let mut findings = Vec::new();
        check(&sources.into_iter().chain(beside).collect::<Vec<_>>(), &mut findings);
        assert!(findings.iter().all(|it| it.path == "docs/limits.md"), "{findings:?}");
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_out_of_the_book_is_caught() {
        assert_eq!(lines("[a](../ARCHITECTURE.md#the-rules) [b](limits.md) [c](https://c)"), []);
        assert_eq!(
            lines("[a](../Cargo.toml)\n`[a](../Cargo.toml)`\n[a\n](../README.md#x)"),
            [1, 4]
        );
    }

    #[test]
    fn a_page_that_is_not_in_the_list_is_caught() {
        let mut findings = Vec::new();
        check(&[Source::new(SUMMARY, ""), Source::new("docs/a.md", "# A")], &mut findings);
        assert_eq!((findings.len(), findings[0].path.as_str()), (1, "docs/a.md"));
    }
}
