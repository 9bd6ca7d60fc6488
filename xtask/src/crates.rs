//! The crates that are published, packed as cargo would upload them.
//!
//! ```text
//!   PUBLISHED ─ cargo package ─► target/package/*.crate ─► dist/packages
//! ```
//!
//! Those are the crate `nowait` and what it is made of. `cargo package` finds a dependency that is
//! not published or has no version, and with a build from the packages alone, a file that is
//! missing in one. Clippy finds a manifest without what an index asks for.

use std::path::{Path, PathBuf};

use crate::dist::{create_folder, install};
use crate::process::{self, Result};

const PUBLISHED: &[&str] = &[
    "nowait-sys",
    "nowait-retry",
    "nowait-block",
    "nowait-cache",
    "nowait-file",
    "nowait-engine",
    "nowait",
];

/// Links that each crate must have, and that its package then holds as files.
const LICENSES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];

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
/// One cannot be packed, or its package has no licence.
pub(crate) fn check() -> Result {
    // Usually all is here that cargo would look for in the index.
    let files = pack(&["--no-verify", "--offline"]).or_else(|_| pack(&["--no-verify"]))?;
    println!("crates: {} can be published", files.len());
    Ok(())
}

fn pack(options: &[&str]) -> Result<Vec<PathBuf>> {
    // What is being worked on is packed too: a tree without changes is for who publishes.
    let mut args = vec!["package", "--allow-dirty"];
    args.extend(options);
    PUBLISHED.iter().for_each(|name| args.extend(["-p", name]));
    let mut lines = Vec::new();
    process::stream(process::command("cargo", &args), |line| lines.push(line.to_owned()))
        .map_err(|error| format!("{}\n{error}", lines.join("\n")))?;
    let folder = process::target().join("package");
    PUBLISHED.iter().map(|name| licensed(&folder, name)).collect()
}

/// Returns the package of a crate in `folder`.
fn licensed(folder: &Path, name: &str) -> Result<PathBuf> {
    let stem = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
    let file = folder.join(format!("{stem}.crate"));
    let list = process::output(process::command("tar", &["-tf", &file.to_string_lossy()]))?;
    let lacks = |license: &&&str| !list.contains(&format!("{stem}/{license}\n"));
    match LICENSES.iter().find(lacks) {
        Some(license) => Err(format!("{}: lacks {license}", file.display())),
        None => Ok(file),
    }
}
