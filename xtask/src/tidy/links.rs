//! Links of the documents: linked files and headings, and files named in backticks, exist.
//!
//! Every page below `docs/` is in `docs/SUMMARY.md`, and links from there to nothing that the book
//! does not hold (`cargo x docs` makes it).

use super::Finding;
use super::source::{FENCED, Source, blank, mask_code};
use crate::pattern::regex;
use crate::process;
use regex_lite::Regex;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The pages of the book.
const BOOK: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";

/// Documents beside `docs/` that the book holds too.
pub(crate) const BESIDE: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// What `cargo x docs` puts beside the pages: rustdoc.
const GENERATED: &str = "docs/api/";

static LINK: LazyLock<Regex> = regex!(r"\]\(([^)]*)\)?");
static HEADING: LazyLock<Regex> = regex!(r"(?m)^#+ (.*)$");
static QUOTED: LazyLock<Regex> = regex!(r"`([^`\n]*)`");

/// A word in backticks that reads like a file.
static NAMED: LazyLock<Regex> =
    regex!(r"^[A-Za-z0-9_{},-][A-Za-z0-9_./{},-]*\.(?:rs|c|h|md|toml|py|sh)$");

/// Checks links and names of files in all documents, and that the book is complete.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let documents: Vec<&Source> =
        sources.iter().filter(|source| source.extension() == "md").collect();
    let headings: HashMap<&str, Vec<String>> =
        documents.iter().map(|source| (source.path.as_str(), slugs(&source.text))).collect();
    let mut in_book = Vec::new();
    for source in &documents {
        for (offset, target) in links(&source.text) {
            match judge(&source.path, &target, &headings) {
                Ok(path) if source.path == SUMMARY => in_book.push(path),
                Ok(_) => {}
                Err(advice) => findings.push(source.finding(offset, advice)),
            }
        }
        for (offset, name) in named_files(&source.text) {
            for path in super::tables::expand(&name) {
                if !is_named(&path, sources) {
                    let advice = format!("there is no {path}: name what there is");
                    findings.push(source.finding(offset, advice));
                }
            }
        }
    }
    let pages = documents.iter().filter(|source| source.path.starts_with(BOOK));
    for page in pages.filter(|page| page.path != SUMMARY) {
        if !in_book.contains(&page.path) {
            findings.push(page.finding_on(1, format!("no line of {SUMMARY} leads here: add one")));
        }
    }
}

/// Returns the file that a link leads to, or what is wrong with it; empty for other places.
fn judge(
    from: &str,
    target: &str,
    headings: &HashMap<&str, Vec<String>>,
) -> Result<String, String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(String::new());
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { from.to_owned() } else { resolve(from, file) };
    if path.starts_with(GENERATED) {
        return Ok(path);
    }
    if !headings.contains_key(path.as_str()) && !process::root().join(&path).exists() {
        return Err(format!("there is no {path}: link to what there is"));
    }
    let in_book = |path: &str| path.starts_with(BOOK) || BESIDE.contains(&path);
    if in_book(from) && !in_book(&path) {
        return Err(format!("{path} is not in the book: name it in backticks"));
    }
    let known = headings.get(path.as_str());
    if !heading.is_empty() && !known.is_some_and(|known| known.iter().any(|it| it == heading)) {
        return Err(format!("{path} has no heading #{heading}"));
    }
    Ok(path)
}

/// Returns `target` of a document at `from`, relative to the root.
pub(crate) fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the targets of all links with their offsets, but for those in code.
pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
    let prose = mask_code(text);
    let found = LINK.captures_iter(&prose).filter_map(|link| Some((link.get(0)?, link.get(1)?)));
    found.map(|(link, target)| (link.start(), target.as_str().trim().to_owned())).collect()
}

/// Returns the anchors of the headings, as GitHub and mdBook make them.
fn slugs(text: &str) -> Vec<String> {
    let mut slugs: Vec<String> = Vec::new();
    for heading in HEADING.captures_iter(&blank(text, &FENCED)) {
        let kept = heading[1].trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        let slug: String = kept.collect();
        let before = slugs.iter().filter(|other| **other == slug).count();
        slugs.push(if before == 0 { slug } else { format!("{slug}-{before}") });
    }
    slugs
}

/// Returns what reads like the path of a file of the tree in backticks, with its offset.
fn named_files(text: &str) -> Vec<(usize, String)> {
    let prose = blank(text, &FENCED);
    let quoted = QUOTED.captures_iter(&prose).filter_map(|quoted| quoted.get(1));
    // `dist/` is built, `NAME` is the reader's to choose.
    let here = |name: &str| !name.starts_with("dist/") && !name.contains("NAME");
    let named = quoted.filter(|it| NAMED.is_match(it.as_str()) && here(it.as_str()));
    named.map(|name| (name.start(), name.as_str().to_owned())).collect()
}

/// Whether a file of the tree has this path, or the end of its path is this.
fn is_named(path: &str, sources: &[Source]) -> bool {
    let ends = |source: &Source| {
        source.path.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    sources.iter().any(ends) || process::root().join(path).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines at which something is wrong in `docs/a.md`, in a tree with another page.
    fn lines(text: &str) -> Vec<usize> {
        let sources = [
            Source::new(SUMMARY, "# Summary\n\n- [A](a.md)\n- [B](deep/b.md)\n"),
            Source::new("docs/a.md", text),
            Source::new("docs/deep/b.md", "# The B\n\n## `x` and y: 1\n\n## Twice\n\n## Twice\n"),
            Source::new("ARCHITECTURE.md", "# Architecture\n"),
            Source::new("crates/x/src/lib.rs", "//! x\n"),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        assert!(findings.iter().all(|finding| finding.path == "docs/a.md"), "{findings:?}");
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_that_leads_nowhere_is_caught() {
        assert_eq!(lines("[b](deep/b.md) [b](deep/b.md#x-and-y-1) [a](#a)\n# A\n"), []);
        assert_eq!(lines("[b](deep/b.md#twice-1) [c](https://c/d.md) [e](../ARCHITECTURE.md)"), []);
        assert_eq!(lines("[b](b.md)\n[b](deep/b.md#z)\n[a](#b)\n"), [1, 2, 3]);
        assert_eq!(lines("[b\nb](deep/c.md)\n[x](../crates/x/src/lib.rs)"), [2, 3]);
        assert_eq!(lines("`[b](c.md)`\n```\n[b](c.md)\n```\n"), []);
    }

    #[test]
    fn a_file_that_is_named_and_not_there_is_caught() {
        assert_eq!(lines("`lib.rs` `x/src/lib.rs` `crates/x/src/lib.rs` `/etc/x.toml`"), []);
        assert_eq!(lines("`src/{lib,gone}.rs`\n`ib.rs`\n"), [1, 2]);
        assert_eq!(lines("```\n`gone.rs`\n```\n`backends/NAME.rs` `profile.json`"), []);
    }

    #[test]
    fn a_page_that_is_not_in_the_book_is_caught() {
        let sources = [Source::new(SUMMARY, "# Summary\n"), Source::new("docs/a.md", "# A\n")];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "docs/a.md");
    }
}
