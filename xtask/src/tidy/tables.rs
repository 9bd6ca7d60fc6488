//! Tables of the documents: the code and the tests that they name exist.

use super::Finding;
use super::source::{Source, words};
use crate::process;
use std::collections::HashSet;

/// Fewest words in the name of a test: shorter ones may be those of counters or options.
const NAME_WORDS_MIN: usize = 4;

/// Checks the columns `code`, `test` and `tests` of each table: files exist, and what reads like
/// the name of a test is the name of something.
pub(super) fn names(sources: &[Source], findings: &mut Vec<Finding>) {
    let paths: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let code = sources.iter().filter(|source| source.is_code());
    let known: HashSet<&str> =
        code.flat_map(|source| words(&source.code).map(|(_, word)| word)).collect();
    for source in sources.iter().filter(|source| source.extension() == "md") {
        let mut columns = Vec::new();
        let mut inside = false;
        for (index, line) in source.text.lines().enumerate() {
            if !line.starts_with('|') {
                inside = false;
                continue;
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if !inside {
                inside = true;
                columns = (0..cells.len()).filter(|at| is_about(cells[*at])).collect();
                continue;
            }
            for cell in columns.iter().filter_map(|column| cells.get(*column)) {
                for token in cell.split('`').skip(1).step_by(2) {
                    if let Some(advice) = judge(token, &paths, &known) {
                        findings.push(source.finding_on(index + 1, advice));
                    }
                }
            }
        }
    }
}

fn is_about(header: &str) -> bool {
    ["code", "test", "tests"].contains(&header)
}

/// Where paths without a first folder begin.
const FOLDERS: &[&str] = &["crates/core/", "crates/api/", "crates/tools/", "crates/verify/"];

/// Returns what is wrong with a word in backticks.
fn judge(token: &str, paths: &[&str], known: &HashSet<&str>) -> Option<String> {
    let is_there = |path: &str| {
        let below = |folder: &str| {
            let whole = format!("{folder}{path}");
            paths.iter().any(|other| {
                other
                    .strip_prefix(&whole)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        // Documents and the like are no sources.
        below("")
            || FOLDERS.iter().any(|folder| below(folder))
            || process::root().join(path).exists()
    };
    if token.contains('/') && !token.contains(' ') {
        let missing = expand(token).into_iter().find(|path| !is_there(path))?;
        return Some(format!("there is no {missing}, below crates/ neither: name what there is"));
    }
    let is_name = token.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        && token.split('_').count() >= NAME_WORDS_MIN;
    (is_name && !known.contains(token)).then(|| format!("nothing is called {token}"))
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

    const CODE: &str = "#[test]\nfn a_claim_that_is_there() {}\n";

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
        ] {
            assert_eq!(findings_in(row), count, "{row}");
        }
    }
}
