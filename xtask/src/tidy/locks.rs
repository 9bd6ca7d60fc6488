//! The tables of locks name each lock of the product, and nothing else.

use super::Finding;
use super::source::{Source, closing_brace, words};
use std::collections::BTreeMap;

/// What a table of locks begins with; it ends with its block.
const TABLE: &str = "Lock ordering:";

/// Words of a table that are no locks.
const FRAME: &[&str] = &["Lock", "ordering", "Alone"];

/// Where the locks are that tables must name.
const PLACES: &[&str] = &["crates/core/", "crates/api/"];

/// What is held and given up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Tables must name it.
    Lock,
    /// A flag that is taken as a lock is; tables may.
    Flag,
}

/// Checks that each field of the types `Mutex` and `RwLock` is named in a table, as `Type.field`,
/// or `Type` if it has no name; and that tables name nothing else, but for what stands in
/// parentheses.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let mut locks = BTreeMap::new();
    for (index, source) in sources.iter().enumerate() {
        for (name, offset, kind) in held(source) {
            locks.entry(name).or_insert((index, offset, kind));
        }
    }
    let mut unnamed = locks.clone();
    for source in sources.iter().filter(|source| source.extension() == "md") {
        for (name, offset) in named(source) {
            unnamed.remove(name);
            if !locks.contains_key(name) {
                findings.push(source.finding(offset, format!("there is no lock {name}")));
            }
        }
    }
    for (name, (index, offset, kind)) in unnamed {
        if kind == Kind::Lock {
            let advice = format!("docs/internals/locks.md does not say when {name} is taken");
            findings.push(sources[index].finding(offset, advice));
        }
    }
}

/// Returns the names in the table of a document, with their offsets.
fn named(source: &Source) -> Vec<(&str, usize)> {
    let Some(start) = source.text.find(TABLE) else { return Vec::new() };
    let table = &source.text[start..];
    let table = &table[..table.find("```").unwrap_or(table.len())];
    let (mut depth, mut found, mut begin) = (0, Vec::new(), None);
    for (at, c) in table.char_indices() {
        let inside = depth == 0 && (c.is_alphanumeric() || c == '_' || c == '.');
        match (begin, inside) {
            (None, true) => begin = Some(at),
            (Some(from), false) => {
                found.push((&table[from..at], start + from));
                begin = None;
            }
            _ => {}
        }
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    found.retain(|(name, _)| !FRAME.contains(name) && !name.trim_matches('.').is_empty());
    found
}

/// Returns what the types of a source hold, by name and offset.
fn held(source: &Source) -> Vec<(String, usize, Kind)> {
    let is_product = PLACES.iter().any(|place| source.path.starts_with(place));
    if !is_product || !source.is_rust() || source.path.ends_with("tests.rs") {
        return Vec::new();
    }
    let (tests, code) = (source.test_ranges(), source.code.as_str());
    let all: Vec<(usize, &str)> = words(code).collect();
    let mut found = Vec::new();
    for pair in all.windows(2) {
        let [(_, keyword), (offset, owner)] = pair else { continue };
        let skipped = tests.iter().any(|range| range.contains(offset));
        if skipped || ["Mutex", "RwLock"].contains(owner) {
            continue; // the locks themselves are of sys
        }
        let rest = &code[*offset..];
        match *keyword {
            "struct" => match rest.find(['{', '(', ';']).map(|at| (at, rest.as_bytes()[at])) {
                Some((at, b'{')) => {
                    let end = closing_brace(code, offset + at).unwrap_or(code.len());
                    fields(owner, &code[offset + at..end], offset + at, &mut found);
                }
                Some((at, b'(')) => {
                    let body = rest[at..].split(';').next().unwrap_or_default();
                    let lock = kind(body).filter(|kind| *kind == Kind::Lock);
                    found.extend(lock.map(|kind| ((*owner).to_owned(), *offset, kind)));
                }
                _ => {}
            },
            "type" => {
                let body = rest.split(';').next().unwrap_or_default();
                let value = body.split_once('=').map_or("", |parts| parts.1).trim_start();
                if value.starts_with("Mutex<") || value.starts_with("RwLock<") {
                    found.push(((*owner).to_owned(), *offset, Kind::Lock));
                }
            }
            _ => {}
        }
    }
    found
}

/// Adds the locks among the fields of `owner`, one a line.
fn fields(owner: &str, body: &str, start: usize, found: &mut Vec<(String, usize, Kind)>) {
    let mut at = start;
    for line in body.split_inclusive('\n') {
        if let Some((before, kind)) = line
            .split_once(':')
            .and_then(|(before, of_type)| kind(of_type).map(|kind| (before, kind)))
        {
            let field = words(before).last().map_or("", |(_, word)| word);
            found.push((format!("{owner}.{field}"), at, kind));
        }
        at += line.len();
    }
}

/// Tells whether a type is, or holds, a lock or a flag.
fn kind(of_type: &str) -> Option<Kind> {
    words(of_type).find_map(|(_, word)| match word {
        "Mutex" | "RwLock" => Some(Kind::Lock),
        "AtomicBool" => Some(Kind::Flag),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "/// Mutex<()>
pub struct Held {
    a: u8,
    pub(crate) lock: Mutex<()>,
    flag: AtomicBool,
}
struct Bare<T>(Arc<RwLock<T>>);
type Guard = MutexGuard<'_, ()>;
type Owned = Mutex<()>;
#[cfg(test)]
mod tests {
    struct Of { test: Mutex<()> }
}
";

    fn advice(table: &str) -> Vec<String> {
        let text = format!("```\nLock ordering:\n{table}```\nNo.lock\n");
        let sources = [
            Source::new("docs/a.md", &text),
            Source::new("crates/core/x/src/lib.rs", CODE),
            Source::new("crates/serve/x/src/lib.rs", "struct Tool { lock: Mutex<()> }"),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.into_iter().map(|finding| finding.advice).collect()
    }

    #[test]
    fn a_table_that_names_each_lock_is_right() {
        assert_eq!(advice("  Held.lock   (No.lock, and words)\n    ->Bare | Owned\n"), [""; 0]);
        assert_eq!(advice("  Held.flag\n ->Held.lock\n  Alone: Bare,\n  Owned\n"), [""; 0]);
    }

    #[test]
    fn a_lock_that_no_table_names_is_caught() {
        let found = advice("  Held.lock\n");
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("Bare") && found[1].contains("Owned"), "{found:?}");
    }

    #[test]
    fn what_a_table_names_and_is_no_lock_is_caught() {
        let found = advice("  Held.lock ->Held.a | Bare\n  Alone: Owned, Gone\n");
        assert_eq!(found, ["there is no lock Held.a", "there is no lock Gone"]);
    }
}
