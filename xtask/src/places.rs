//! The places that programs, libraries and their debug information name: the same ones wherever
//! they were built, so that the same sources give the same bytes.
//!
//! | on the machine that builds | in the files |
//! |---|---|
//! | the folder of the tree | `/usr/src/nowait` |
//! | cargo's target folder, where it is not in the tree | `/usr/src/nowait/target` |
//! | sources of other crates: `registry/src/*` of cargo's folder | `/usr/src/crates` |
//! | sources of the standard library, where they are installed | as where they are not |

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::Machine;
use crate::process::{self, Result};

const TREE: &str = "/usr/src/nowait";
const CRATES: &str = "/usr/src/crates";

/// Has a command of cargo's name them in what it builds; `flags` are for rustc besides, as is what
/// the caller's `RUSTFLAGS` holds. Flags in a configuration file of cargo's do not count then.
///
/// # Errors
/// rustc or cargo do not say where they keep sources.
pub(crate) fn of_cargo(command: &mut Command, flags: &[&str]) -> Result {
    let renamed = renamed()?;
    let options = renamed.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let mut words = given_rustflags();
    words.extend(flags.iter().map(|flag| (*flag).to_owned()));
    words.extend(options);
    // Of this form a word may contain spaces.
    command.env("CARGO_ENCODED_RUSTFLAGS", words.join("\u{1f}"));
    // What build scripts compile. They divide these at spaces: no path with one can be told.
    let own = env::var("CFLAGS").unwrap_or_default();
    let options = renamed.iter().filter(|(from, _)| !from.contains(' '));
    let options = options.map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
    command.env("CFLAGS", [own].into_iter().chain(options).collect::<Vec<_>>().join(" "));
    Ok(())
}

/// Returns the option by which a C compiler names them in what it compiles of the tree.
pub(crate) fn of_c_compiler() -> String {
    format!("-ffile-prefix-map={}={TREE}", process::root().display())
}

/// Has cargo unpack the sources of other crates. It would do so as it builds: the first build would
/// not know yet which folder to rename, and the second one, which does, would build all anew.
pub(crate) fn unpack(machine: Machine) {
    let target = if machine.is_own() { "host-tuple" } else { machine.triple() };
    // Without the network all may be there but what only tests need: cargo build says what is not.
    drop(process::output(process::command("cargo", &["fetch", "--target", target])));
}

/// Returns what stands for what, the more special later: the last that fits counts.
fn renamed() -> Result<Vec<(String, String)>> {
    let mut renamed: Vec<(String, String)> = Vec::new();
    let mut add = |from: &Path, to: &str| {
        // A compiler names the folder that it runs in without symbolic links.
        let real = fs::canonicalize(from).unwrap_or_else(|_| from.to_path_buf());
        for from in [&real, from] {
            let from = from.display().to_string();
            if !renamed.iter().any(|(other, _)| *other == from) {
                renamed.push((from, to.to_owned()));
            }
        }
    };
    let (root, target) = (process::root(), process::target());
    if !target.starts_with(&root) {
        add(&target, &format!("{TREE}/target"));
    }
    add(&root, TREE);
    for folder in registries() {
        add(&folder, CRATES);
    }
    let installed = process::output(process::command("rustc", &["--print", "sysroot"]))?;
    let version = process::output(process::command("rustc", &["-vV"]))?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let commit = commit.ok_or("rustc -vV names no commit")?;
    let library = Path::new(installed.trim()).join("lib/rustlib/src/rust");
    add(&library, &format!("/rustc/{commit}"));
    Ok(renamed)
}

/// Returns the folders in which cargo keeps the sources of crates, one for each registry.
fn registries() -> Vec<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let Some(home) = home else { return Vec::new() };
    let entries = fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

/// Returns the flags for rustc that the caller gave.
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
        let mut command = Command::new("cargo");
        of_cargo(&mut command, &["-Copt-level=1"]).unwrap();
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
