//! Checks that `docs/errors.md` explains each message of the programs, libraries and APIs, and
//! nothing else.
//!
//! A message is a string of the product with several words on one line; placeholders (`{path}`) do
//! not count as words. [`OUTPUT`] lists files whose strings are results, help or protocols. The
//! first column of the page's tables quotes messages as the source has them.

use super::Finding;
use super::source::{NO_CODE, Source, closing_brace};
use crate::pattern::regex;
use regex_lite::Regex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

const PAGE: &str = "docs/errors.md";

/// Folders with messages for users. The benchmark is for developers.
const PLACES: &[&str] =
    &["crates/api/", "crates/cli/", "crates/core/", "crates/serve/", "python/nowait/"];

const OUTPUT: &[&str] = &[
    // Examples, tests outside folders of tests, and texts that only tests print.
    "/examples/",
    "/models.rs",
    // Help, manual pages and reports.
    "/args/enable.rs",
    "/args.rs",
    "/doctor/text.rs",
    "/doctor/answer.rs",
    "/status/src/format.rs",
    "/top.rs",
    "python/nowait/bench.py",
    // Files with strings of HTTP and of metrics.
    "/status/src/fetch.rs",
    "/status/http.rs",
    "/status/prometheus.rs",
];

/// Code before a string that is not a message but a result, an assertion or a description of work.
static NOT_BEFORE: LazyLock<Regex> = regex!(
    r"(?:\b(?:writeln|write)!\(\s*text,\s*$|\bpush_str\($|\bprint\(format!\(\s*$",
    r"|\b(?:caught|note|expect|unreachable!|contains|strip_prefix|split|split_once|says)\([^()]*$",
    r"|\b(?:debug_)?assert\w*!\([^;]*$)",
);
static ATTRIBUTE: LazyLock<Regex> = regex!(r"#!?\[[^\]]*\]");
static PLACEHOLDER: LazyLock<Regex> = regex!(r"\{[^{}]*\}");
static WORDS: LazyLock<Regex> = regex!(r"[A-Za-z][\w'=.,:;()-]* [\w'`(]*[A-Za-z]");
static CONTINUED: LazyLock<Regex> = regex!(r"\\\n\s*");
static RAISED: LazyLock<Regex> = regex!(r#"(?:raise [\w.]+|warnings\.warn)\(\s*f?"([^"\n]+)""#);
static QUOTED: LazyLock<Regex> = regex!(r"``\s?(.+?)\s?``|`([^`\n]+)`");

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let mut said = BTreeMap::new();
    for source in sources.iter().filter(|source| is_product(source)) {
        for (message, offset) in messages(source) {
            said.entry(message).or_insert((source, offset));
        }
    }
    let page = sources.iter().find(|source| source.path == PAGE);
    for (message, offset) in page.iter().flat_map(|page| explained(page)) {
        if said.remove(&message).is_none() {
            let advice = format!("no source says `{message}`, or a row above explains it");
            findings.extend(page.map(|page| page.finding(offset, advice)));
        }
    }
    for (message, (source, offset)) in said {
        let advice = format!("{PAGE} does not say why, and what to do: `{message}`");
        findings.push(source.finding(offset, advice));
    }
}

fn is_product(source: &Source) -> bool {
    let path = source.path.as_str();
    let is_test = source.is_test() || path.ends_with("tests.rs") || path.ends_with("build.rs");
    PLACES.iter().any(|place| path.starts_with(place))
        && !is_test
        && !OUTPUT.iter().any(|part| path.contains(part))
}

fn messages(source: &Source) -> Vec<(String, usize)> {
    if source.extension() == "py" {
        let raised = RAISED.captures_iter(&source.text).filter_map(|it| it.get(1));
        return raised.map(|it| (it.as_str().to_owned(), it.start())).collect();
    }
    if !source.is_rust() {
        return Vec::new();
    }
    let blanked = blanked(source);
    let literals = NO_CODE
        .find_iter(&source.text)
        .filter(|it| it.as_str().starts_with('"') && !source.text[..it.start()].ends_with('b'));
    let literals = literals.filter(|it| !blanked.iter().any(|range| range.contains(&it.start())));
    let found = literals.filter(|it| {
        let statement = source.code[..it.start()].rfind([';', '{', '}']).map_or(0, |at| at + 1);
        !NOT_BEFORE.is_match(&source.code[statement..it.start()])
    });
    let texts = found.map(|it| (plain(it.as_str().trim_matches('"')), it.start()));
    texts
        .filter(|(text, _)| {
            !text.contains('\n') && WORDS.is_match(&PLACEHOLDER.replace_all(text, ""))
        })
        .collect()
}

fn blanked(source: &Source) -> Vec<Range<usize>> {
    let mut ranges = source.test_ranges();
    ranges.extend(ATTRIBUTE.find_iter(&source.code).map(|it| it.range()));
    for (at, _) in source.code.match_indices("Debug for ") {
        let opening = source.code[at..].find('{').map_or(at, |brace| at + brace);
        ranges.extend(closing_brace(&source.code, opening).map(|end| at..end));
    }
    ranges
}

fn plain(literal: &str) -> String {
    let joined: Cow<'_, str> = CONTINUED.replace_all(literal, "");
    joined.replace("\\\"", "\"").replace("\\n", " ").trim().to_owned()
}

fn explained(page: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for row in page.text.lines().filter(|line| line.starts_with("| `")) {
        let start = row.as_ptr() as usize - page.text.as_ptr() as usize;
        let cell = row[1..].find(" | ").map_or(row, |end| &row[..=end]);
        for quoted in QUOTED.captures_iter(cell) {
            let text = quoted.get(1).or_else(|| quoted.get(2)).expect("one of the two");
            found.push((text.as_str().to_owned(), start + text.start()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(page: &str, code: &str, path: &str) -> Vec<String> {
        let page = format!("| message | why | what to do |\n|---|---|---|\n{page}\n");
        let sources = [Source::new(path, code), Source::new(PAGE, &page)];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.into_iter().map(|finding| finding.advice).collect()
    }

    fn rust(page: &str, code: &str) -> usize {
        advice(page, code, "crates/cli/x/src/lib.rs").len()
    }

    #[test]
    fn a_message_without_a_row_is_caught_in_rust_and_python() {
        let code = "fail(format!(\"{path}: not \\\n     found\\n\"));";
        assert_eq!(rust("", code), 1);
        assert_eq!(rust("| `{path}: not found` | x | y |", code), 0);
        let python = "raise ValueError(f\"no {x}\")";
        assert_eq!(advice("", python, "python/nowait/x.py").len(), 1);
        assert_eq!(advice("| `no {x}`<br>`` `a` ``", python, "python/nowait/x.py").len(), 1);
    }

    #[test]
    fn a_row_without_a_message_is_caught() {
        assert_eq!(advice("| `not said` | x | y |", "//! x", "a.rs").len(), 1);
    }

    #[test]
    fn texts_for_developers_are_no_messages() {
        for code in [
            "#[doc = \"two words\"]",
            "assert!(a, \"two words\");",
            "it.expect(\"two words\");",
            "writeln!(text, \"two words\");",
            "\"{error}: {path}\" \"word\" b\"two words\"",
            "impl fmt::Debug for A { fn fmt() { \"two words\" } }",
            "#[cfg(test)] mod tests { fn a() { \"two words\" } }",
        ] {
            assert_eq!(rust("", code), 0, "{code}");
        }
    }
}
