//! Checks that the tables of locks name each lock of `crates/core` and `crates/api`, and nothing
//! else but flags.

use super::Finding;
use super::source::{Source, closing_brace};
use crate::pattern::regex;
use regex_lite::Regex;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The first words of a table of locks. The table ends with its block of code.
const TABLE: &str = "Lock ordering:";

/// Words of a table that are not locks.
const FRAME: &[&str] = &["Lock", "ordering", "Alone"];

const PLACES: &[&str] = &["crates/core/", "crates/api/"];

/// A text in parentheses, or a name outside parentheses.
static NAMES: LazyLock<Regex> = regex!(r"\((?:[^()]|\([^()]*\))*\)|[\w.]*\w[\w.]*");

/// The head of a structure up to the opening of its fields, or an alias of a lock type.
static TYPES: LazyLock<Regex> =
    regex!(r"\b(?:struct|type)\s+(\w+)(?:[^={(;]*[{(]|[^=;]*=\s*(?:Mutex|RwLock)<)");

/// A line with a field that is or holds a lock or a flag.
static FIELDS: LazyLock<Regex> = regex!(r"(?m)^[^:\n]*?(\w+):[^\n]*?\b(Mutex|RwLock|AtomicBool)\b");

static BARE: LazyLock<Regex> = regex!(r"\b(?:Mutex|RwLock)\b");

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lock,
    /// An `AtomicBool`. A table may name it, because it may be used like a lock.
    Flag,
}

/// Tables name a lock as `Type.field`, or as `Type` if the field has no name.
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

fn named(source: &Source) -> Vec<(&str, usize)> {
    let Some(start) = source.text.find(TABLE) else { return Vec::new() };
    let table = &source.text[start..];
    let table = &table[..table.find("```").unwrap_or(table.len())];
    let found = NAMES.find_iter(table).map(|name| (name.as_str(), start + name.start()));
    found.filter(|(name, _)| !FRAME.contains(name) && !name.starts_with('(')).collect()
}

fn held(source: &Source) -> Vec<(String, usize, Kind)> {
    let is_product = PLACES.iter().any(|place| source.path.starts_with(place));
    if !is_product || !source.is_rust() || source.path.ends_with("tests.rs") {
        return Vec::new();
    }
    let (tests, code) = (source.test_ranges(), source.code.as_str());
    let mut found = Vec::new();
    for item in TYPES.captures_iter(code) {
        let (whole, owner) = (item.get(0).expect("all of it"), item[1].to_owned());
        // sys defines the types `Mutex` and `RwLock`; their own fields are not locks of a table.
        let is_lock = ["Mutex", "RwLock"].contains(&owner.as_str());
        if is_lock || tests.iter().any(|range| range.contains(&whole.start())) {
            continue;
        }
        match code.as_bytes()[whole.end() - 1] {
            b'{' => {
                let end = closing_brace(code, whole.end() - 1).unwrap_or(code.len());
                for field in FIELDS.captures_iter(&code[whole.end()..end]) {
                    let at = whole.end() + field.get(1).expect("a field").start();
                    let kind = if &field[2] == "AtomicBool" { Kind::Flag } else { Kind::Lock };
                    found.push((format!("{owner}.{}", &field[1]), at, kind));
                }
            }
            b'(' if !BARE.is_match(code[whole.end()..].split(';').next().unwrap_or("")) => {}
            _ => found.push((owner, whole.start(), Kind::Lock)),
        }
    }
    found
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
