//! Tables of the documents: the code and the tests that they name exist.

use super::Finding;
use super::claims::Claims;
use super::source::{Source, words};
use crate::process;
use std::collections::HashSet;

/// Fewest words in the name of a test: shorter ones may be those of counters or options.
const NAME_WORDS_MIN: usize = 4;

/// Checks the columns `code`, `test` and `tests` of each table: files exist, and what reads like
/// a name is the name of something. In a column of tests that is a test; behind a file and a
/// colon, up to a semicolon, one of that file. A column `file` is a walk: it names each file once,
/// so that its reader never turns back.
pub(super) fn names(sources: &[Source], findings: &mut Vec<Finding>) {
    let paths: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let code = sources.iter().filter(|source| source.is_code());
    let known: HashSet<&str> =
        code.flat_map(|source| words(&source.code).map(|(_, word)| word)).collect();
    let known = Known { paths, words: known, claims: Claims::of(sources) };
    for source in sources.iter().filter(|source| source.extension() == "md") {
        let mut passed = HashSet::new();
        for cell in cells(&source.text) {
            let advice = match cell.header {
                "code" | "test" | "tests" => {
                    let clauses = cell.text.split(';');
                    clauses.flat_map(|it| known.judge(it, cell.header != "code")).collect()
                }
                "file" => {
                    let files = cell.text.split('`').skip(1).step_by(2);
                    let again = files.filter(|file| !passed.insert((cell.table, *file)));
                    again.map(|file| format!("{file} was passed before")).collect()
                }
                _ => Vec::new(),
            };
            findings.extend(advice.into_iter().map(|it| source.finding_on(cell.line, it)));
        }
    }
}

/// A cell of a table, but for its header.
struct Cell<'a> {
    /// The line of its table's header, and its own.
    table: usize,
    line: usize,
    header: &'a str,
    text: &'a str,
}

/// Returns the cells of all tables of a document.
fn cells(document: &str) -> Vec<Cell<'_>> {
    let (mut found, mut headers, mut table) = (Vec::new(), Vec::new(), 0);
    for (index, line) in document.lines().enumerate() {
        if !line.starts_with('|') {
            table = 0;
            continue;
        }
        let row: Vec<&str> = line.split('|').map(str::trim).collect();
        if table == 0 {
            (table, headers) = (index + 1, row);
            continue;
        }
        let row = headers.iter().zip(row);
        found.extend(row.map(|(header, text)| Cell { table, line: index + 1, header, text }));
    }
    found
}

/// Where paths without a first folder begin.
const FOLDERS: &[&str] = &[
    "crates/core/",
    "crates/api/",
    "crates/cli/",
    "crates/serve/",
    "crates/bench/",
    "crates/verify/",
];

/// What tables may name.
struct Known<'a> {
    paths: Vec<&'a str>,
    words: HashSet<&'a str>,
    claims: Claims<'a>,
}

impl Known<'_> {
    /// Returns what is wrong with the words in backticks of a clause.
    fn judge(&self, clause: &str, is_of_tests: bool) -> Vec<String> {
        let (mut files, mut found) = (Vec::new(), Vec::new());
        let mut parts = clause.split('`');
        let _before = parts.next();
        while let (Some(token), after) = (parts.next(), parts.next().unwrap_or_default()) {
            if token.contains('/') && !token.contains(' ') {
                let named = expand(token);
                found.extend(named.iter().find(|path| !self.is_there(path)).map(|missing| {
                    format!("there is no {missing}, below crates/ neither: name what there is")
                }));
                files = if after.starts_with(':') { named } else { Vec::new() };
            } else if is_name(token) {
                found.extend(self.judge_name(token, &files, is_of_tests));
            }
        }
        found
    }

    fn judge_name(&self, name: &str, files: &[String], is_of_tests: bool) -> Option<String> {
        let is_long = name.split('_').count() >= NAME_WORDS_MIN;
        let is_in = |path: &String| {
            self.claims.is_in(path, name)
                || FOLDERS.iter().any(|folder| self.claims.is_in(&format!("{folder}{path}"), name))
        };
        let is_right = match (is_of_tests, files) {
            (true, [_, ..]) => files.iter().any(is_in),
            (true, []) => !is_long || self.claims.is_there(name),
            (false, _) => !is_long || self.words.contains(name),
        };
        let place = if files.is_empty() { String::new() } else { format!(" in {}", files[0]) };
        (!is_right).then(|| format!("nothing is called {name}{place}"))
    }

    fn is_there(&self, path: &str) -> bool {
        let below = |folder: &str| {
            let whole = format!("{folder}{path}");
            self.paths.iter().any(|other| {
                other
                    .strip_prefix(&whole)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        // Documents and the like are no sources.
        below("")
            || FOLDERS.iter().any(|folder| below(folder))
            || process::root().join(path).exists()
    }
}

/// Tells whether a word reads like the name of a test, or of a function.
fn is_name(token: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    token.contains('_') && token.bytes().all(inside)
}

/// Returns `a/{b,c}/d` as `a/b/d` and `a/c/d`.
pub(super) fn expand(token: &str) -> Vec<String> {
    let Some((before, rest)) = token.split_once('{') else { return vec![token.to_owned()] };
    let Some((inside, after)) = rest.split_once('}') else { return vec![token.to_owned()] };
    let choices = inside.split(',').map(|choice| format!("{before}{}{after}", choice.trim()));
    choices.flat_map(|path| expand(&path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "#[test]\nfn a_claim_that_is_there() {}\nfn no_test_but_a_word() {}\n";

    fn findings_in(row: &str) -> usize {
        let table = format!("words\n\n| what | code | test |\n|---|---|---|\n{row}\n");
        let sources = [
            Source::new("ARCHITECTURE.md", &table),
            Source::new("crates/core/x/src/lib.rs", CODE),
            Source::new("tests/tests/y.rs", ""),
        ];
        let mut findings = Vec::new();
        names(&sources, &mut findings);
        findings.len()
    }

    #[test]
    fn a_test_or_a_file_that_is_not_there_is_caught() {
        for (row, count) in [
            ("| a | `x/src/lib.rs` | `tests/tests/y.rs`, `a_claim_that_is_there` |", 0),
            ("| `no/where.rs` | `x/src` | counter `punt_order`, fast, `y` |", 0),
            ("| a | | `a_claim_that_is_gone` |", 1),
            ("| a | `x/src/{lib,gone}.rs` | `tests/tests/z.rs` |", 2),
            ("| a | `x/sr` | |", 1),
            ("| a | | `x/src/lib.rs`: `a_claim_that_is_there`, `a_claim` |", 1),
            ("| a | | `tests/tests/y.rs`: `a_claim_that_is_there` |", 1),
            ("| a | | `tests/tests/y.rs`; `a_claim_that_is_there` |", 0),
            ("| a | `no_test_but_a_word` | `no_test_but_a_word` |", 1),
        ] {
            assert_eq!(findings_in(row), count, "{row}");
        }
    }

    #[test]
    fn a_walk_that_turns_back_is_caught() {
        let walk = "| | file | what |\n|---|---|---|\n| 1 | `a.rs` | `b.rs` |\n| 2 | `b.rs` | |\n";
        let lines = |text: &str| {
            let mut findings = Vec::new();
            names(&[Source::new("docs/a.md", text)], &mut findings);
            findings.into_iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(lines(&format!("{walk}\n{walk}")), []);
        assert_eq!(lines(&format!("{walk}| 3 | `a.rs` | |\n")), [5]);
    }
}
