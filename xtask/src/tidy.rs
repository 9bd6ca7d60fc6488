//! The rules that no other tool checks. Looks at the files, not at the history.
//!
//! ```text
//!   layers      a crate depends only on lower ones
//!   modules     a module imports only those of lower floors
//!   boundaries  system calls in core/sys, atomics of core/retry in primitives.rs, no naps in tests
//!   text        columns, file length, leading `//!`, unfinished work
//!   locks       the tables of locks name each lock, and nothing else
//!   tables      the files that tables of documents name exist, and the tests are in their files
//!   decisions   what a decision that stands names in backticks is there
//!   links       documents link to what there is; every page is in the book
//!   quotes      what a document quotes from a file is in the file
//!   glossary    words that docs/glossary.md replaces are not used
//! ```

mod boundaries;
mod claims;
mod decisions;
mod glossary;
mod layers;
pub(crate) mod links;
mod locks;
mod modules;
mod quotes;
mod source;
mod tables;
mod text;

use std::fmt;
use std::fs;
use std::path::Path;

use crate::process::{self, Result};
use source::Source;

/// One broken rule: where, and what to do.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.advice)
    }
}

/// Looks at one file, adds what it finds.
type Check = fn(&Source, &mut Vec<Finding>);

const CHECKS: &[Check] = &[
    layers::dependencies,
    boundaries::system_calls,
    boundaries::atomics,
    boundaries::sleeps,
    quotes::check,
    text::columns,
    text::length,
    text::module_comment,
    text::unfinished,
];

/// Folders of the tree that hold no source of ours; hidden ones are skipped too.
const SKIPPED_FOLDERS: &[&str] = &["target", "dist", "corpus", "artifacts"];

/// Hidden folders that do hold sources.
const HIDDEN_SOURCES: &[&str] = &[".ci", ".cargo"];

/// Checks every source file of the tree and prints what was found.
///
/// # Errors
/// Something was found.
pub(crate) fn run() -> Result {
    let mut sources = Vec::new();
    collect(&process::root(), "", &mut sources)?;
    let mut findings = Vec::new();
    for source in &sources {
        for check in CHECKS {
            check(source, &mut findings);
        }
    }
    modules::floors(&sources, &mut findings);
    locks::check(&sources, &mut findings);
    tables::names(&sources, &mut findings);
    decisions::check(&sources, &mut findings);
    links::check(&sources, &mut findings);
    glossary::check(&sources, &mut findings)?;
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} findings", sources.len(), findings.len());
    if findings.is_empty() { Ok(()) } else { Err(String::from("tidy: see the lines above")) }
}

/// Reads the files below `folder`, in the order of their names.
fn collect(folder: &Path, prefix: &str, sources: &mut Vec<Source>) -> Result {
    let describe = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(describe)? {
        entries.push(entry.map_err(describe)?);
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(describe)?;
        if kind.is_dir() && is_source_folder(&name) {
            collect(&entry.path(), &format!("{path}/"), sources)?;
        } else if kind.is_file() && Source::is_checked(&path) {
            // A file that another process is just replacing has no text to check.
            let Ok(text) = fs::read_to_string(entry.path()) else { continue };
            sources.push(Source::new(&path, &text));
        }
    }
    Ok(())
}

fn is_source_folder(name: &str) -> bool {
    if name.starts_with('.') {
        return HIDDEN_SOURCES.contains(&name);
    }
    !SKIPPED_FOLDERS.contains(&name)
}

/// Runs one check over one text: what the tests of the checks need.
#[cfg(test)]
fn check_text(check: Check, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    check(&Source::new(path, text), &mut findings);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_walked_without_its_build_results() {
        let mut sources = Vec::new();
        collect(&process::root(), "", &mut sources).unwrap();
        let paths: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
        assert!(paths.contains(&"xtask/src/tidy.rs"));
        assert!(paths.contains(&".ci/run"));
        assert!(!paths.iter().any(|path| path.starts_with("target/")));
    }

    #[test]
    fn a_finding_names_file_and_line() {
        let advice = String::from("do this");
        let finding = Finding { path: String::from("a.rs"), line: 3, advice };
        assert_eq!(finding.to_string(), "a.rs:3: do this");
    }
}
