//! The public interfaces as lists. A review sees each change of them, and nothing of the last
//! release is removed unless the new version number permits that.
//!
//! ```text
//!   rustdoc's pages of `nowait` (job doc) ─ rustdoc.rs ─► list ═ crates/api/nowait/api.txt
//!                                                          │
//!   nowait.h ───────────────────────────── header.rs ─► list
//!                                                          └─ has all of the last release (tag v*)
//! ```
//!
//! `docs/decisions/0034-lists-of-the-interfaces.md` has the reasons.

mod header;
mod rustdoc;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::FEATURES;
use crate::{c_api, process};

/// The list of the Rust API.
const LIST: &str = "crates/api/nowait/api.txt";
const HEADER: &str = "crates/api/capi/include/nowait.h";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compares rustdoc's pages with the list, and both interfaces with the last release.
pub(crate) fn check() -> Result<()> {
    let sh = process::shell()?;
    let found = rustdoc::list(&process::target().join("doc/nowait"))?;
    let change = changes(&lines(&sh.read_file(LIST)?), &found).join("\n");
    ensure!(
        change.is_empty(),
        "the API of the crate nowait is not what {LIST} says:\n{change}\n\
         if that is meant, run `cargo x api` and commit the list"
    );
    since_release(&sh, &found)
}

/// Writes the list.
pub(crate) fn write() -> Result<()> {
    let sh = process::shell()?;
    process::run(cmd!(sh, "cargo doc -p nowait --no-deps --lib --features {FEATURES}"))?;
    let found = rustdoc::list(&process::target().join("doc/nowait"))?;
    let old = lines(&sh.read_file(LIST).unwrap_or_default());
    changes(&old, &found).iter().for_each(|change| println!("{change}"));
    Ok(sh.write_file(LIST, found.join("\n") + "\n")?)
}

/// Compares both interfaces with the last release before this tree.
fn since_release(sh: &Shell, found: &[String]) -> Result<()> {
    let Ok(tag) = process::output(cmd!(sh, "git describe --tags --abbrev=0 --match v[0-9]*"))
    else {
        println!("api: no release before this one is known here");
        return Ok(());
    };
    let (tag, name) = (tag.trim(), c_api::SONAME);
    let released = |file: &str| process::output(cmd!(sh, "git show {tag}:{file}"));
    let gone = missing(&lines(&released(LIST)?), found).join("\n");
    ensure!(
        gone.is_empty() || may_break(tag.trim_start_matches('v'), VERSION),
        "{tag} had this in its Rust API, and version {VERSION} promises it too:\n{gone}"
    );
    let header = header::list(&sh.read_file(HEADER)?);
    let gone = missing(&header::list(&released(HEADER)?), &header).join("\n");
    // Programs that were linked with a library of this name must continue to run.
    let same_library = released("xtask/src/c_api.rs")?.contains(&format!("\"{name}\""));
    ensure!(
        gone.is_empty() || !same_library,
        "{tag} had this in its C API, and {name} promises it:\n{gone}"
    );
    println!("api: nothing is gone that {tag} had and version {VERSION} promises");
    Ok(())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Returns the lines of `old` that `new` lacks; counts repeated lines.
fn missing(old: &[String], new: &[String]) -> Vec<String> {
    let mut left: Vec<&String> = new.iter().collect();
    let mut gone = old.to_vec();
    gone.retain(|line| {
        let place = left.iter().position(|other| *other == line);
        place.map(|place| left.swap_remove(place)).is_none()
    });
    gone
}

/// Returns the lines that differ, marked as by diff(1).
fn changes(old: &[String], new: &[String]) -> Vec<String> {
    let gone = missing(old, new).into_iter().map(|line| format!("- {line}"));
    let added = missing(new, old).into_iter().map(|line| format!("+ {line}"));
    gone.chain(added).collect()
}

/// Returns `true` if a version may lack what another had: before 1.0 the second number counts as
/// the first.
fn may_break(old: &str, new: &str) -> bool {
    let leading = |version: &str| {
        let mut numbers = version.split('.').map(str::to_owned);
        match numbers.next() {
            Some(zero) if zero == "0" => numbers.next(),
            major => major,
        }
    };
    leading(old) != leading(new) || old.starts_with("0.") != new.starts_with("0.")
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
        let versions = [("0.2.0", "0.3.0", true), ("0.1.0", "1.0.0", true)];
        let versions = versions.into_iter().chain([("0.2.0", "0.2.7", false)]);
        for (old, new, may) in versions.chain([("1.2.0", "1.3.0", false)]) {
            assert_eq!(may_break(old, new), may, "{old} {new}");
        }
    }
}
