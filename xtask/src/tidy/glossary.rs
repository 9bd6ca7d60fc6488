//! Types do not have the names that `docs/glossary.md` replaces.
//!
//! The table below the heading `## Names that are not used` lists them in backticks in its first
//! column. Phrases are for Vale (`contrib/vale`).

use super::Finding;
use super::source::{Source, words};
use crate::pattern::regex;
use crate::process;
use regex_lite::Regex;
use std::fs;
use std::sync::LazyLock;

/// The file with the names, from the root of the tree.
const PATH: &str = "docs/glossary.md";

/// The heading above the table.
const HEADING: &str = "## Names that are not used";

/// Words after which a type is named.
const DEFINES: &[&str] = &["struct", "enum", "trait", "type", "union"];

static NAME: LazyLock<Regex> = regex!(r"`(\w+)`");

/// One entry of the table.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    /// The replacement, as the table has it.
    instead: String,
}

/// Checks all sources against the table of the glossary.
///
/// # Errors
/// The glossary cannot be read, or has no table.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) -> Result<(), String> {
    let text = fs::read_to_string(process::root().join(PATH))
        .map_err(|error| format!("{PATH}: {error}"))?;
    let entries = parse(&text);
    if entries.is_empty() {
        return Err(format!("{PATH}: no table below `{HEADING}`"));
    }
    for source in sources.iter().filter(|source| source.is_rust()) {
        types(source, &entries, findings);
    }
    Ok(())
}

/// Reads the entries of the table.
fn parse(glossary: &str) -> Vec<Entry> {
    let below = glossary.lines().skip_while(|line| *line != HEADING).skip(1);
    let rows = below.take_while(|line| !line.starts_with("## "));
    let cells = rows.filter_map(|row| row.strip_prefix('|')?.split_once('|'));
    let entries = cells.flat_map(|(names, instead)| {
        let instead = instead.trim_matches([' ', '|']);
        let entry = |name: &str| Entry { name: name.to_owned(), instead: instead.to_owned() };
        NAME.captures_iter(names).map(move |name| entry(&name[1]))
    });
    entries.collect()
}

/// No type has one of the names.
fn types(source: &Source, entries: &[Entry], findings: &mut Vec<Finding>) {
    let mut before = "";
    for (offset, word) in words(&source.code) {
        let entry = entries.iter().find(|entry| entry.name == word);
        if let Some(entry) = entry.filter(|_| DEFINES.contains(&before)) {
            let advice = format!("`{word}`: write `{}` ({PATH})", entry.instead);
            findings.push(source.finding(offset, advice));
        }
        before = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# Words\n\n| used | for |\n|---|---|\n| `kick` | x |\n\n\
        ## Names that are not used\n\n| not used | instead |\n|---|---|\n\
        | `Thing`, `Stuff` | the noun |\n";

    fn lines(text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        types(&Source::new("a.rs", text), &parse(GLOSSARY), &mut findings);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_table_is_read_and_others_are_not() {
        let entries = parse(GLOSSARY);
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["Thing", "Stuff"]);
        assert_eq!(entries[1].instead, "the noun");
        assert!(!parse(include_str!("../../../docs/glossary.md")).is_empty());
    }

    #[test]
    fn a_type_of_that_name_is_caught_and_its_use_is_not() {
        assert_eq!(lines("//! x\npub(crate) struct Thing<T>(T);\n"), [2]);
        assert_eq!(lines("use other::Thing; // struct Thing\n"), []);
    }
}
