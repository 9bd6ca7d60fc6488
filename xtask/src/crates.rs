//! The crates that are published, packed as cargo would upload them.
//!
//! ```text
//!   PUBLISHED ─ cargo package ─► target/package/*.crate ─► dist/packages
//! ```
//!
//! Those are the crate `nowait` and what it is made of. `cargo package` finds a dependency that is
//! not published or has no version, and with a build from the packages alone, a file that is
//! missing in one. Clippy finds a manifest without what an index asks for.

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::process;

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
pub(crate) fn run() -> Result<()> {
    let (sh, packages) = (process::shell()?, process::shell()?.create_dir("dist/packages")?);
    let files = pack(&[])?;
    files.iter().for_each(|file| println!("{file}"));
    process::run(cmd!(sh, "cp {files...} {packages}"))
}

/// Packs them without a build, which takes a second.
pub(crate) fn check() -> Result<()> {
    // Usually all is here that cargo would look for in the index.
    let files = pack(&["--no-verify", "--offline"]).or_else(|_| pack(&["--no-verify"]))?;
    println!("crates: {} can be published", files.len());
    Ok(())
}

/// Packs them; each must have its licences.
fn pack(options: &[&str]) -> Result<Vec<String>> {
    let (sh, folder) = (process::shell()?, process::target().join("package"));
    let packages = PUBLISHED.iter().flat_map(|name| ["-p", name]);
    // What is being worked on is packed too: a tree without changes is for who publishes.
    process::output(cmd!(sh, "cargo package --allow-dirty {options...}").args(packages))?;
    let licensed = |name: &&str| {
        let stem = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let file = folder.join(format!("{stem}.crate"));
        let list = process::output(cmd!(sh, "tar -tf {file}"))?;
        for license in LICENSES {
            let has_it = list.contains(&format!("{stem}/{license}\n"));
            ensure!(has_it, "{}: lacks {license}", file.display());
        }
        Ok(file.display().to_string())
    };
    PUBLISHED.iter().map(licensed).collect()
}
