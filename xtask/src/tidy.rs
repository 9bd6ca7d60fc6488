//! Checks rules that no other tool checks. The rules apply to the files, not to the history.
//!
//! ```text
//!   layers      a crate depends only on crates of lower layers
//!   modules     a module imports only modules of lower floors
//!   boundaries  foreign code only in core/sys, atomics of modelled crates from sys, no test sleeps
//!   text        columns, file length, leading `//!`, unfinished work
//!   locks       the tables of locks name each lock, and nothing else
//!   messages    docs/errors.md explains each message, and nothing else
//!   names       files, members and tests that documents name in backticks are there
//!   book        every page is in the book, and links to nothing outside
//!   rumdl       files and headings that documents link to exist (rumdl.toml)
//!   shellcheck  scripts of the shell have no warnings
//!   quotes      what a document quotes from a file is in the file
//!   glossary    types do not have names that docs/glossary.md replaces
//! ```

mod book;
mod boundaries;
mod glossary;
mod layers;
mod locks;
mod messages;
mod modules;
mod names;
mod quotes;
mod source;
mod text;

use std::fmt;
use std::fs;

use anyhow::{Result, ensure};
use walkdir::{DirEntry, WalkDir};
use xshell::cmd;

use crate::interpreter::Interpreter;
use crate::process;
use crate::python;
use source::Source;

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

type Check = fn(&Source, &mut Vec<Finding>);

const CHECKS: &[Check] = &[
    layers::dependencies,
    boundaries::check,
    quotes::check,
    text::columns,
    text::length,
    text::module_comment,
    text::unfinished,
];

type WholeCheck = fn(&[Source], &mut Vec<Finding>);

const WHOLE_CHECKS: &[WholeCheck] =
    &[modules::floors, locks::check, messages::check, names::check, book::check, glossary::check];

/// Folders of the tree without sources of the project. tidy also skips hidden folders, except
/// [`HIDDEN_SOURCES`].
const SKIPPED_FOLDERS: &[&str] = &["target", "dist", "corpus", "artifacts"];

const HIDDEN_SOURCES: &[&str] = &[".ci", ".cargo"];

pub(crate) fn run() -> Result<()> {
    let (sources, mut findings) = (collect()?, Vec::new());
    for source in &sources {
        CHECKS.iter().for_each(|check| check(source, &mut findings));
    }
    WHOLE_CHECKS.iter().for_each(|check| check(&sources, &mut findings));
    findings.dedup();
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("tidy: {} files, {} findings", sources.len(), findings.len());
    run_others(&sources)?;
    ensure!(findings.is_empty(), "tidy: see the lines above");
    Ok(())
}

fn run_others(sources: &[Source]) -> Result<()> {
    let sh = process::shell()?;
    let python = python::environment(&sh, "lint", &Interpreter::chosen()?)?;
    let [rumdl, shellcheck] = ["rumdl", "shellcheck"].map(|name| python.with_file_name(name));
    process::run(cmd!(sh, "{rumdl} check --config xtask/rumdl.toml --no-cache --quiet ."))?;
    let is_script = |it: &&Source| it.extension() == "sh" && !it.path.starts_with("tests/");
    let scripts = sources.iter().filter(is_script).map(|source| &source.path);
    // The excluded checks of shellcheck confuse parameters and arrays of different functions.
    let shellcheck = cmd!(sh, "{shellcheck} --severity=warning --exclude=SC2120,SC2128,SC2178");
    process::run(shellcheck.args(scripts))
}

fn collect() -> Result<Vec<Source>> {
    let walk = WalkDir::new(process::root()).sort_by_file_name().into_iter();
    let mut sources = Vec::new();
    for entry in walk.filter_entry(is_walked) {
        let entry = entry?;
        let path = entry.path().strip_prefix(process::root())?.to_string_lossy();
        if entry.file_type().is_file() && Source::is_checked(&path) {
            // Skip a file that cannot be read: another process may be replacing it at this moment.
            let Ok(text) = fs::read_to_string(entry.path()) else { continue };
            sources.push(Source::new(&path, &text));
        }
    }
    Ok(sources)
}

fn is_walked(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let is_hidden = name.starts_with('.') && !HIDDEN_SOURCES.contains(&&*name);
    entry.depth() == 0
        || !entry.file_type().is_dir()
        || !is_hidden && !SKIPPED_FOLDERS.contains(&&*name)
}

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
        let sources = collect().unwrap();
        let paths: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
        assert!(paths.contains(&"xtask/src/tidy.rs"));
        assert!(paths.contains(&".ci/run"));
        assert!(!paths.iter().any(|path| path.starts_with("target/")));
        let finding = sources[0].finding_on(3, "do this");
        assert_eq!(finding.to_string(), format!("{}:3: do this", paths[0]));
    }
}
