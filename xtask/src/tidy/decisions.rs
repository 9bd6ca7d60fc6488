//! Decisions: what one names in backticks is there, unless a later one has superseded it.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex_lite::Regex;

use super::Finding;
use super::source::{Source, words};
use super::tables::expand;
use crate::pattern::regex;
use crate::process;

const FOLDER: &str = "docs/decisions/";

/// In how many lines at its top a decision says that it is superseded.
const STATUS_LINES: usize = 4;

/// A path below a folder of the tree; a member of a type; the name of a test.
static NAMES: LazyLock<Regex> = regex!(
    r"`(?:((?:crates|docs|packaging|python|tests|xtask)/[\w./{},-]*)",
    r"|([A-Z]\w*(?:::\w+)+)(?:\(\))?|([a-z0-9]+(?:_[a-z0-9]+){4,}))`"
);

/// Checks the names in all decisions that stand.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let code = sources.iter().filter(|source| source.is_code() || source.extension() == "py");
    let files: Vec<HashSet<&str>> =
        code.map(|source| words(&source.code).map(|(_, word)| word).collect()).collect();
    let in_one = |name: &str| files.iter().any(|file| words(name).all(|it| file.contains(it.1)));
    let is_there = |path: &String| process::root().join(path).exists();
    for source in sources.iter().filter(|source| stands(source)) {
        for name in NAMES.captures_iter(&source.text) {
            let found = match name.get(1) {
                Some(path) => expand(path.as_str()).iter().all(is_there),
                None => in_one(&name[0]),
            };
            if !found {
                let advice = format!("there is no {}: name what there is, or supersede", &name[0]);
                findings.push(source.finding(name.get(0).expect("all of it").start(), advice));
            }
        }
    }
}

fn stands(source: &Source) -> bool {
    let mut status = source.text.lines().take(STATUS_LINES);
    source.path.starts_with(FOLDER) && !status.any(|line| line.contains("Superseded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_in(decision: &str) -> usize {
        let sources = [
            Source::new("docs/decisions/0001-a.md", decision),
            Source::new("crates/x/src/lib.rs", "impl Kick { fn begin() {} }"),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.len()
    }

    #[test]
    fn a_name_that_is_gone_is_caught_unless_the_decision_is_superseded() {
        let right = "`Kick::begin()`, `xtask/src/{main,tidy}.rs`, `log/<seq>`, `min_nr`, `Gone`";
        let wrong = "`Kick::end`, `Gone::begin`, `xtask/src/gone`, `a_test_that_is_gone`";
        assert_eq!(findings_in(right), 0);
        assert_eq!(findings_in(wrong), 4);
        assert_eq!(findings_in(&format!("# 1. A\n\n**Status.** Superseded by 2.\n\n{wrong}")), 0);
    }
}
