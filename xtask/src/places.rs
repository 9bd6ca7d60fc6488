//! The paths in programs, libraries and their debug information. They do not depend on the folder
//! of the build, so that the same sources give the same bytes.
//!
//! | on the machine that builds | in the files |
//! |---|---|
//! | the folder of the tree | `/usr/src/nowait` |
//! | cargo's target folder, if it is not in the tree | `/usr/src/nowait/target` |
//! | sources of other crates: `registry/src/*` of cargo's folder | `/usr/src/crates` |
//! | sources of the standard library, if installed | `/rustc/COMMIT`, as if not installed |

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Cmd, Shell, cmd};

use crate::machine::Machine;
use crate::process;

const TREE: &str = "/usr/src/nowait";
const CRATES: &str = "/usr/src/crates";

/// With CARGO_ENCODED_RUSTFLAGS, cargo ignores the flags for rustc in its configuration files.
pub(crate) fn of_cargo<'a>(sh: &Shell, command: Cmd<'a>, flags: &[&str]) -> Result<Cmd<'a>> {
    let renamed = renamed(sh)?;
    let options = renamed.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let mut words = given_rustflags();
    words.extend(flags.iter().map(|flag| (*flag).to_owned()));
    words.extend(options);
    // Build scripts split CFLAGS at spaces, so paths with a space are left out.
    let own = env::var("CFLAGS").unwrap_or_default();
    let options = renamed.iter().filter(|(from, _)| !from.contains(' '));
    let options = options.map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
    let options = [own].into_iter().chain(options).collect::<Vec<_>>().join(" ");
    // In this form of the variable, a word may contain spaces.
    Ok(command.env("CARGO_ENCODED_RUSTFLAGS", words.join("\u{1f}")).env("CFLAGS", options))
}

pub(crate) fn of_c_compiler() -> String {
    format!("-ffile-prefix-map={}={TREE}", process::root().display())
}

/// Makes cargo unpack the sources of other crates. Otherwise the first build would not know yet
/// which folder to rename, and the second build would compile everything again.
pub(crate) fn unpack(sh: &Shell, machine: Machine) {
    let target = if machine.is_own() { "host-tuple" } else { machine.triple };
    // Without a network this fails, but all crates may be present; `cargo build` reports a missing
    // one.
    drop(process::output(cmd!(sh, "cargo fetch --target {target}")));
}

/// The compiler applies the last pair that matches, so more specific paths come later.
fn renamed(sh: &Shell) -> Result<Vec<(String, String)>> {
    let (root, target) = (process::root().to_owned(), process::target());
    let installed = process::output(cmd!(sh, "rustc --print sysroot"))?;
    let version = process::output(cmd!(sh, "rustc -vV"))?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let commit = commit.context("rustc -vV names no commit")?;
    let library = Path::new(installed.trim()).join("lib/rustlib/src/rust");
    let mut places = Vec::new();
    if !target.starts_with(&root) {
        places.push((target, format!("{TREE}/target")));
    }
    places.push((root, TREE.to_owned()));
    places.extend(registries().into_iter().map(|folder| (folder, CRATES.to_owned())));
    places.push((library, format!("/rustc/{commit}")));
    let mut renamed = Vec::new();
    for (from, to) in places {
        // A compiler resolves symbolic links in the path of its working folder.
        let real = fs::canonicalize(&from).unwrap_or_else(|_| from.clone());
        renamed.extend([real, from].map(|from| (from.display().to_string(), to.clone())));
    }
    renamed.dedup();
    Ok(renamed)
}

/// cargo has a folder of sources for each registry.
fn registries() -> Vec<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let Some(home) = home else { return Vec::new() };
    let entries = fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

fn given_rustflags() -> Vec<String> {
    let split = |text: String, at: char| -> Vec<String> {
        text.split(at).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    match env::var("CARGO_ENCODED_RUSTFLAGS") {
        Ok(text) => split(text, '\u{1f}'),
        Err(_) => env::var("RUSTFLAGS").map(|text| split(text, ' ')).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_not_named_by_what_is_built() {
        let sh = process::shell().unwrap();
        let command = of_cargo(&sh, sh.cmd("cargo"), &["-Copt-level=1"]).unwrap();
        let command = std::process::Command::from(command);
        let value = |name: &str| {
            let found = command.get_envs().find(|(other, _)| *other == name);
            found.unwrap().1.unwrap().to_string_lossy().into_owned()
        };
        let root = process::root().display().to_string();
        let flags = value("CARGO_ENCODED_RUSTFLAGS");
        let flags: Vec<&str> = flags.split('\u{1f}').collect();
        assert!(flags.contains(&"-Copt-level=1"));
        assert!(flags.contains(&format!("--remap-path-prefix={root}={TREE}").as_str()));
        assert!(value("CFLAGS").contains(&format!("-ffile-prefix-map={root}={TREE}")));
    }
}
