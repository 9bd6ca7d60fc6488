//! Words that `docs/glossary.md` replaces do not appear in comments, strings and documents.
//!
//! The table below the heading `## Words that are not used` lists them in its first column,
//! separated by commas. A plain entry is a phrase of prose; an entry in backticks is the name of
//! a type, which must not be defined. Text between backticks and the glossary are not checked.

use super::Finding;
use super::source::{Source, words};
use crate::process;
use std::fs;

/// Where the words stand, from the root of the tree.
const PATH: &str = "docs/glossary.md";

/// The heading above the table.
const HEADING: &str = "## Words that are not used";

/// Words after which a type is named.
const DEFINES: &[&str] = &["struct", "enum", "trait", "type", "union"];

/// One entry of the table.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// The words of the phrase, in small letters; or one name of a type.
    words: Vec<String>,
    is_type: bool,
    /// As the table has it.
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
    let checked = |source: &&Source| {
        let written = source.is_code() || source.extension() == "md";
        written && source.path != PATH
    };
    for source in sources.iter().filter(checked) {
        types(source, &entries, findings);
        prose(source, &entries, findings);
    }
    Ok(())
}

/// Reads the entries of the table.
fn parse(glossary: &str) -> Vec<Entry> {
    let below = glossary.lines().skip_while(|line| *line != HEADING).skip(1);
    let rows =
        below.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with('|'));
    let mut entries = Vec::new();
    // The first two rows are the header and the line below it.
    for row in rows.skip(2) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, not_used, instead, ..] = cells[..] else { continue };
        for entry in not_used.split(',').map(str::trim) {
            let name = entry.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
            let words = match name {
                Some(name) => vec![name.to_owned()],
                None => words(entry).map(|(_, word)| word.to_lowercase()).collect(),
            };
            entries.push(Entry { words, is_type: name.is_some(), instead: instead.to_owned() });
        }
    }
    entries
}

/// No type has one of the names.
fn types(source: &Source, entries: &[Entry], findings: &mut Vec<Finding>) {
    if !source.is_rust() {
        return;
    }
    let mut before = "";
    for (offset, word) in words(&source.code) {
        let entry = entries.iter().find(|entry| entry.is_type && entry.words[0] == word);
        if let Some(entry) = entry.filter(|_| DEFINES.contains(&before)) {
            findings.push(source.finding(offset, advice(word, entry)));
        }
        before = word;
    }
}

/// No phrase appears in comments, strings and documents.
fn prose(source: &Source, entries: &[Entry], findings: &mut Vec<Finding>) {
    let text = text_of(source);
    let found: Vec<(usize, &str)> = words(&text).collect();
    let phrases = entries.iter().filter(|entry| !entry.is_type);
    for entry in phrases {
        for window in found.windows(entry.words.len()) {
            let same = window.iter().zip(&entry.words).all(|((_, a), b)| a.eq_ignore_ascii_case(b));
            let (offset, _) = window[0];
            let end = window.last().map_or(offset, |(at, word)| at + word.len());
            if same && is_one_phrase(&text[offset..end]) {
                findings.push(source.finding(offset, advice(&entry.words.join(" "), entry)));
            }
        }
    }
}

fn advice(what: &str, entry: &Entry) -> String {
    format!("`{what}`: write `{}` ({PATH})", entry.instead)
}

/// Whether only spaces, line ends and the marks of comments stand between the words.
fn is_one_phrase(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "_/!*".contains(c))
}

/// Returns the text with everything that is not prose blanked out, of the same length: in code
/// what is neither comment nor string, and everywhere what stands between backticks on a line.
fn text_of(source: &Source) -> String {
    let mut bytes = source.text.clone().into_bytes();
    if source.is_code() {
        for (byte, code) in bytes.iter_mut().zip(source.code.bytes()) {
            if code != b' ' && code != b'\n' {
                *byte = b' ';
            }
        }
    }
    for line in bytes.split_mut(|&byte| byte == b'\n') {
        let mut quoted = false;
        for byte in line {
            quoted ^= *byte == b'`';
            if quoted {
                *byte = b' ';
            }
        }
    }
    // Bytes beyond ASCII are blanked with all of their character: marks and code begin and end
    // at an ASCII byte.
    String::from_utf8(bytes).expect("whole characters were blanked")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# Words\n\n| used | for |\n|---|---|\n| kick | x |\n\n\
        ## Words that are not used\n\n| not used | instead |\n|---|---|\n\
        | by and by, perchance | later |\n| `Thing` | the noun |\n";

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let (entries, source) = (parse(GLOSSARY), Source::new(path, text));
        let mut findings = Vec::new();
        types(&source, &entries, &mut findings);
        prose(&source, &entries, &mut findings);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_table_is_read_and_others_are_not() {
        let entries = parse(GLOSSARY);
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0].words, ["by", "and", "by"]);
        assert_eq!((entries[2].is_type, entries[2].instead.as_str()), (true, "the noun"));
        assert!(!parse(include_str!("../../../docs/glossary.md")).is_empty());
    }

    #[test]
    fn a_phrase_is_caught_in_comments_strings_and_documents() {
        assert_eq!(lines("a.rs", "//! x\n/// It comes By and\n/// by.\nfn a() {}\n"), [2]);
        assert_eq!(lines("a.rs", "const A: &str = \"perchance\";\n"), [1]);
        assert_eq!(lines("a.md", "é\nPerchance.\n"), [2]);
    }

    #[test]
    fn code_and_what_is_quoted_are_not_prose() {
        assert_eq!(lines("a.rs", "fn perchance() { by(and, by) } // `perchance`\n"), []);
        assert_eq!(lines("a.md", "By and, by: `perchance`\n"), []);
    }

    #[test]
    fn a_type_of_that_name_is_caught_and_its_use_is_not() {
        assert_eq!(lines("a.rs", "//! x\npub(crate) struct Thing<T>(T);\n"), [2]);
        assert_eq!(lines("a.rs", "use other::Thing; // struct Thing\n"), []);
    }
}
