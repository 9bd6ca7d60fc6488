//! The crates that are published, packed as cargo would upload them.
//!
//! ```text
//!   manifests without `publish` ─ cargo package ─► target/package/*.crate ─► dist/packages
//! ```
//!
//! Those are the crate `nowait` and what it is made of. `cargo package` finds a dependency that is
//! not published or has no version, and with a build from the packages alone, a file that is
//! missing in one. What it only warns of is looked for here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::dist::{create_folder, install};
use crate::process::{self, Result};

/// What stands in the manifest of each, by which it is found and judged.
const FIELDS: &[&str] =
    &["description", "license", "repository", "readme", "keywords", "categories", "rust-version"];
/// What is in each package.
const FILES: &[&str] = &["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT", "src/lib.rs"];

/// Packs them, builds each from its package, and copies them to dist/packages.
///
/// # Errors
/// As for [`check`]; a package does not build.
pub(crate) fn run() -> Result {
    let packages = process::root().join("dist/packages");
    create_folder(&packages)?;
    for file in pack(&[])? {
        let to = packages.join(file.file_name().unwrap_or_default());
        install(&file, &to)?;
        println!("{}", to.display());
    }
    Ok(())
}

/// Packs them without a build, which takes a second.
///
/// # Errors
/// One cannot be packed, or its package lacks what it needs to be published.
pub(crate) fn check() -> Result {
    // Usually all is here that cargo would look for in the index.
    let files = pack(&["--no-verify", "--offline"]).or_else(|_| pack(&["--no-verify"]))?;
    println!("crates: {} can be published", files.len());
    Ok(())
}

fn pack(options: &[&str]) -> Result<Vec<PathBuf>> {
    let names = published()?;
    // What is being worked on is packed too: a tree without changes is for who publishes.
    let mut args = vec!["package", "--allow-dirty"];
    args.extend(options);
    names.iter().for_each(|name| args.extend(["-p", name]));
    let mut lines = Vec::new();
    process::stream(process::command("cargo", &args), |line| lines.push(line.to_owned()))
        .map_err(|error| format!("{}\n{error}", lines.join("\n")))?;
    let version = env!("CARGO_PKG_VERSION");
    let folder = process::target().join("package");
    let mut files = Vec::new();
    for name in &names {
        let stem = format!("{name}-{version}");
        let file = folder.join(format!("{stem}.crate"));
        complete(&file, &stem)?;
        files.push(file);
    }
    Ok(files)
}

/// Looks into a package.
fn complete(file: &Path, stem: &str) -> Result {
    let archive = file.display().to_string();
    let list = process::output(process::command("tar", &["-tf", &archive]))?;
    let manifest = format!("{stem}/Cargo.toml");
    let manifest = process::output(process::command("tar", &["-xOf", &archive, &manifest]))?;
    match lacking(&list, &manifest, stem).as_slice() {
        [] => Ok(()),
        lacking => Err(format!("{archive}: lacks {}", lacking.join(", "))),
    }
}

/// Returns which files and fields a package lacks; `list` is what tar(1) lists.
fn lacking(list: &str, manifest: &str, stem: &str) -> Vec<&'static str> {
    let has_file = |name: &&str| list.lines().any(|line| line == format!("{stem}/{name}"));
    let has_field = |name: &&str| {
        let begins = format!("{name} = ");
        manifest.lines().any(|line| line.starts_with(&begins) && !line.ends_with("\"\""))
    };
    let files = FILES.iter().filter(|name| !has_file(name));
    files.chain(FIELDS.iter().filter(|name| !has_field(name))).copied().collect()
}

/// Returns the names of the packages whose manifests do not forbid it.
fn published() -> Result<Vec<String>> {
    let crates = process::root().join("crates");
    let mut names = Vec::new();
    for group in folders(&crates)? {
        for folder in folders(&group)? {
            let path = folder.join("Cargo.toml");
            let manifest = fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            names.extend(name_if_published(&manifest).map(str::to_owned));
        }
    }
    Ok(names)
}

fn name_if_published(manifest: &str) -> Option<&str> {
    if manifest.lines().any(|line| line.starts_with("publish")) {
        return None;
    }
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// Returns the folders in a folder, in the order of their names.
fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rust_api_and_what_it_is_made_of_are_published() {
        let engine = ["block", "cache", "file", "retry", "sys"];
        let mut expected = vec![String::from("nowait-engine"), String::from("nowait")];
        expected.extend(engine.map(|name| format!("nowait-{name}")));
        assert_eq!(published().unwrap(), expected);
    }

    #[test]
    fn what_a_package_lacks_is_named() {
        let list = "a-1/Cargo.toml\na-1/README.md\na-1/LICENSE-MIT\na-1/src/lib.rs\n";
        let manifest = "description = \"\"\nlicense = \"MIT\"\nreadme = \"README.md\"\n\
            keywords = [\ncategories = [\"a\"]\nrust-version = \"1.95\"\n";
        assert_eq!(lacking(list, manifest, "a-1"), ["LICENSE-APACHE", "description", "repository"]);
    }
}
