//! Checks names in backticks: the files, members and tests that a document names exist.
//!
//! | what | must be |
//! |---|---|
//! | a path below a folder of the tree or of a group of crates; a file, as `config.rs` | there |
//! | `Type::member`, the long name of a test or a function | code of one file |
//! | a name behind a file and a colon, up to a semicolon | code of that file |
//!
//! A column `file` of a table is a reading order: it names each file only once. In `CHANGELOG.md`
//! and in a superseded decision, only files are checked.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex_lite::Regex;

use super::Finding;
use super::source::{FENCED, Source, blank, words};
use crate::pattern::regex;
use crate::process;

/// A decision that is superseded says so in this many lines at its top.
const STATUS_LINES: usize = 4;

/// Folders to which paths in documents may be relative.
const FOLDERS: &[&str] = &[
    "",
    "crates/",
    "crates/core/",
    "crates/api/",
    "crates/cli/",
    "crates/serve/",
    "crates/bench/",
    "crates/verify/",
];

static QUOTED: LazyLock<Regex> = regex!(r"`([^`\n]*)`");

/// One of: the name of a file; another path; a member of a type; a long name; a shorter one.
static NAMES: LazyLock<Regex> = regex!(
    r"^(?:([\w{},-][\w./{},-]*\.(?:rs|c|h|md|toml|py|sh))|([\w.{},-]+/[\w./{},-]*)",
    r"|([A-Z]\w*(?:::\w+)+)(?:\(\))?|([a-z0-9]+(?:_[a-z0-9]+){3,})|([a-z0-9]+(?:_[a-z0-9]+)+))$"
);

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let known = Known::of(sources);
    for document in sources.iter().filter(|source| source.extension() == "md") {
        for (index, line) in blank(&document.text, &FENCED).lines().enumerate() {
            let missing = known.missing(line, is_history(document)).into_iter();
            let advice = missing.map(|name| format!("there is no {name}: name what there is"));
            findings.extend(advice.map(|advice| document.finding_on(index + 1, advice)));
        }
        walks(document, findings);
    }
}

fn is_history(document: &Source) -> bool {
    let mut status = document.text.lines().take(STATUS_LINES);
    document.path == "CHANGELOG.md"
        || document.path.starts_with("docs/decisions/")
            && status.any(|line| line.contains("Superseded"))
}

struct Known<'a> {
    sources: &'a [Source],
    code: Vec<(&'a str, HashSet<&'a str>)>,
}

impl<'a> Known<'a> {
    fn of(sources: &'a [Source]) -> Known<'a> {
        let code = sources.iter().filter(|source| source.is_code() || source.extension() == "py");
        let words_of = |source: &'a Source| words(&source.code).map(|(_, word)| word).collect();
        Known {
            sources,
            code: code.map(|source| (source.path.as_str(), words_of(source))).collect(),
        }
    }

    /// In history, checks only names of files.
    fn missing(&self, line: &str, is_history: bool) -> Vec<String> {
        let (mut files, mut found, mut end) = (Vec::new(), Vec::new(), 0);
        for quoted in QUOTED.captures_iter(line) {
            let whole = quoted.get(0).expect("all of it");
            if line[end..whole.start()].contains(['|', ';']) {
                files.clear();
            }
            end = whole.end();
            let Some(name) = NAMES.captures(&quoted[1]) else { continue };
            let is = |group| name.get(group).is_some();
            if is(1) && !is_made(&quoted[1]) || is(2) && !is_history && is_of_tree(&quoted[1]) {
                let named = expand(&quoted[1]);
                found.extend(named.iter().find(|path| !self.has_path(path)).cloned());
                files = if line[end..].starts_with(':') { named } else { Vec::new() };
            } else if !is_history && (is(3) || is(4) || is(5) && !files.is_empty()) {
                let is_in = |(file, code): &(&str, HashSet<&str>)| {
                    (files.is_empty() || files.iter().any(|path| is_at(file, path)))
                        && words(&quoted[1]).all(|(_, word)| code.contains(word))
                };
                let is_metric = files.is_empty() && self.has_text(&quoted[1]);
                if !is_metric && !self.code.iter().any(is_in) {
                    let place = if files.is_empty() { "code" } else { &files[0] };
                    found.push(format!("{} in {place}", &quoted[1]));
                }
            }
        }
        found
    }

    fn has_path(&self, path: &str) -> bool {
        FOLDERS.iter().any(|folder| process::root().join(folder).join(path).exists())
            || self.sources.iter().any(|file| is_at(&file.path, path))
    }

    fn has_text(&self, name: &str) -> bool {
        let text = format!("\"{}\"", name.trim_start_matches("nowait_serve_"));
        self.sources.iter().any(|source| source.is_code() && source.text.contains(&text))
    }
}

/// Returns `true` if `path` is the end of the path `file`, or a folder that contains it.
fn is_at(file: &str, path: &str) -> bool {
    let is_in = |folder: &&str| {
        let rest = file.strip_prefix(*folder).and_then(|file| file.strip_prefix(path));
        rest.is_some_and(|rest| path.ends_with('/') || rest.starts_with('/'))
    };
    file.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        || FOLDERS.iter().any(is_in)
}

/// Returns `true` if readers choose a part of the path themselves, or a build makes the file.
fn is_made(path: &str) -> bool {
    path.starts_with("dist/") || path.contains("NAME")
}

fn is_of_tree(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    !is_made(path) && FOLDERS.iter().any(|it| process::root().join(it).join(first).is_dir())
}

fn expand(token: &str) -> Vec<String> {
    let parts = token.split_once('{').and_then(|(before, rest)| {
        let (inside, after) = rest.split_once('}')?;
        Some((before, inside, after))
    });
    let Some((before, inside, after)) = parts else { return vec![token.to_owned()] };
    let choices = inside.split(',').map(|choice| format!("{before}{}{after}", choice.trim()));
    choices.flat_map(|path| expand(&path)).collect()
}

fn walks(document: &Source, findings: &mut Vec<Finding>) {
    let (mut column, mut passed) = (None, HashSet::new());
    for (index, line) in document.text.lines().enumerate() {
        if !line.starts_with('|') {
            (column, passed) = (None, HashSet::new());
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        column = column.or(cells.iter().position(|cell| *cell == "file"));
        let cell = column.and_then(|column| cells.get(column)).copied().unwrap_or_default();
        for file in cell.split('`').skip(1).step_by(2).filter(|file| !passed.insert(*file)) {
            findings.push(document.finding_on(index + 1, format!("{file} was passed before")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "#[test]\nfn a_claim_that_is_there() {}\nimpl Kick { fn begin() {} }\n";

    fn findings_in(path: &str, text: &str) -> Vec<usize> {
        let sources = [
            Source::new(path, text),
            Source::new("crates/core/file/src/x.rs", CODE),
            Source::new("tests/tests/y.rs", "// a_claim_that_is_there\n"),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_name_that_is_gone_is_caught_wherever_it_stands() {
        for (line, count) in [
            ("`x.rs` `src/x.rs` `file/src/x.rs` `crates/core/file/src/x.rs` `file/src`", 0),
            ("`/etc/x.toml` `backends/NAME.rs` `dist/a.sh` `profile.json` `no/folder`", 0),
            ("`src/{x,gone}.rs`, `file/sr`, `xtask/src/gone`, `.rs`, `tests/tests/z.rs`", 4),
            ("`Kick::begin()`, `a_claim_that_is_there`, `min_nr`, `Gone`", 0),
            ("`Kick::end`, `Gone::begin`, `a_claim_that_is_gone`", 3),
            ("| `file/src/x.rs`: `a_claim_that_is_there`, `a_claim` |", 1),
            ("| `tests/tests/y.rs`: `a_claim_that_is_there` |", 1),
            ("| `tests/tests/y.rs`; `a_claim_that_is_there` |", 0),
            ("| `{x,y}.rs`: `a_claim_that_is_there` | `a_claim` |", 0),
        ] {
            assert_eq!(findings_in("docs/a.md", line).len(), count, "{line}");
        }
        assert_eq!(findings_in("docs/a.md", "```\n`gone.rs`\n```\n\n`gone.rs`\n"), [5]);
    }

    #[test]
    fn history_may_name_what_is_gone_but_for_files() {
        let text = "# 1. A\n\n**Status.** Superseded by 2.\n\n`Gone::end` `xtask/gone` `gone.rs`\n";
        assert_eq!(findings_in("docs/decisions/0001-a.md", text), [5]);
        assert_eq!(findings_in("docs/a.md", text), [5, 5, 5]);
    }

    #[test]
    fn a_walk_that_turns_back_is_caught() {
        let walk = "| | file | what |\n|---|---|---|\n| 1 | `x.rs` | `y.rs` |\n| 2 | `y.rs` | |\n";
        assert_eq!(findings_in("docs/a.md", &format!("{walk}\n{walk}")), []);
        assert_eq!(findings_in("docs/a.md", &format!("{walk}| 3 | `x.rs` | |\n")), [5]);
    }
}
