//! The public interfaces as lists: what changes in them is seen in a review, and what a release had
//! does not go away unless the version says so.
//!
//! ```text
//!   rustdoc's pages of `nowait` (job doc) ─ rustdoc.rs ─► list ═ crates/api/nowait/api.txt
//!                                                          │
//!   nowait.h ───────────────────────────── header.rs ─► list
//!                                                          └─ has all of the last release (tag v*)
//! ```
//!
//! `docs/decisions/0034-lists-of-the-interfaces.md` says why they are made so.

mod header;
mod rustdoc;

use std::fs;
use std::path::Path;

use crate::log::Log;
use crate::process::{self, Result};
use crate::{c_api, examples};

/// The list of the Rust API.
const LIST: &str = "crates/api/nowait/api.txt";
const HEADER: &str = "crates/api/capi/include/nowait.h";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compares the pages that rustdoc has made with the list, and both interfaces with the last
/// release.
///
/// # Errors
/// The list is not that of this tree, or something is gone that the version promises.
pub(crate) fn check(log: &Log) -> Result {
    let found = rustdoc::list(&process::target().join("doc/nowait"))?;
    let listed = read(&process::root().join(LIST))?;
    let change = changes(&lines(&listed), &found);
    if !change.is_empty() {
        return Err(format!(
            "the API of the crate nowait is not what {LIST} says:\n{}\n\
             if that is meant, run `cargo x api` and commit the list",
            change.join("\n")
        ));
    }
    log.line(&since_release(&found)?);
    Ok(())
}

/// Writes the list anew.
///
/// # Errors
/// rustdoc fails, or the list cannot be written.
pub(crate) fn write() -> Result {
    let args = ["doc", "-p", "nowait", "--no-deps", "--lib", "--features", examples::FEATURES];
    process::stream(process::command("cargo", &args), |line| println!("{line}"))?;
    let found = rustdoc::list(&process::target().join("doc/nowait"))?;
    let file = process::root().join(LIST);
    for change in changes(&lines(&read(&file).unwrap_or_default()), &found) {
        println!("{change}");
    }
    fs::write(&file, found.join("\n") + "\n").map_err(|error| format!("{LIST}: {error}"))
}

/// Compares with the last release that this tree comes from; returns what came of it.
fn since_release(found: &[String]) -> Result<String> {
    let describe = ["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"];
    let Ok(tag) = process::output(process::command("git", &describe)) else {
        return Ok(String::from("api: no release before this one is known here"));
    };
    let tag = tag.trim();
    let released =
        |file: &str| process::output(process::command("git", &["show", &format!("{tag}:{file}")]));
    let gone = missing(&lines(&released(LIST)?), found);
    if !gone.is_empty() && !may_break(tag.trim_start_matches('v'), VERSION) {
        return Err(format!(
            "{tag} had this in its Rust API, and version {VERSION} promises it too:\n{}",
            gone.join("\n")
        ));
    }
    let header = header::list(&read(&process::root().join(HEADER))?);
    let gone = missing(&header::list(&released(HEADER)?), &header);
    // Programs that were linked with a library of this name go on to run.
    let same_library = released("xtask/src/c_api.rs")?.contains(&format!("\"{}\"", c_api::SONAME));
    if !gone.is_empty() && same_library {
        let (gone, name) = (gone.join("\n"), c_api::SONAME);
        return Err(format!("{tag} had this in its C API, and {name} promises it:\n{gone}"));
    }
    Ok(format!("api: nothing is gone that {tag} had and version {VERSION} promises"))
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Returns the lines of `old` that `new` has not; a line that stands twice is two.
fn missing(old: &[String], new: &[String]) -> Vec<String> {
    let mut left: Vec<&String> = new.iter().collect();
    let mut gone = Vec::new();
    for line in old {
        match left.iter().position(|other| *other == line) {
            Some(place) => drop(left.swap_remove(place)),
            None => gone.push(line.clone()),
        }
    }
    gone
}

/// Returns what is different, as diff(1) marks it.
fn changes(old: &[String], new: &[String]) -> Vec<String> {
    let gone = missing(old, new).into_iter().map(|line| format!("- {line}"));
    let added = missing(new, old).into_iter().map(|line| format!("+ {line}"));
    gone.chain(added).collect()
}

/// Whether a version may lack what another had: before 1.0 the second number counts as the first.
fn may_break(old: &str, new: &str) -> bool {
    let leading = |version: &str| {
        let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        match numbers.as_slice() {
            [0, minor, ..] => (0, *minor),
            [major, ..] => (*major, 0),
            [] => (0, 0),
        }
    };
    leading(old) != leading(new)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_and_a_line_that_stands_twice_is_two() {
        let (old, new) = (lines("a\nb\nb\nc"), lines("c\nb\nd\na"));
        assert_eq!(changes(&old, &new), ["- b", "+ d"]);
        assert!(changes(&old, &old).is_empty());
    }

    #[test]
    fn only_a_new_leading_number_may_break() {
        assert!(may_break("0.2.0", "0.3.0"));
        assert!(may_break("0.9.1", "1.0.0"));
        assert!(!may_break("0.2.0", "0.2.7"));
        assert!(!may_break("1.2.0", "1.3.0"));
    }
}
