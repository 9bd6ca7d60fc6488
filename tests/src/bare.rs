//! The folder of which `make bare` makes an archive, and the files that the archive's script
//! writes.

use crate::program::Program;
use crate::skip::{self, Skip};
use crate::subject;
use std::path::{Path, PathBuf};

/// Returns the path of a file of `packaging/bare`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/bare").join(name)
}

/// Fills `folder` with the content of the archive.
pub fn stage(folder: &Path) -> Result<(), Skip> {
    skip::missing_program(&["patchelf", "fio", "dpkg-query"])?;
    let bench = subject::built("bin/nowait-bench");
    let dist = bench.parent().and_then(Path::parent).expect("a folder");
    Program::new("bash").arg(source("stage.sh")).arg(folder).env("DIST", dist).succeed();
    Ok(())
}

/// Returns the names of the files of a whole measurement, sorted.
pub fn files() -> Vec<String> {
    let parts = ["submit", "cached", "direct", "growth"];
    let kinds = ["html", "json", "txt"];
    let of_part = |part: &str| kinds.map(|kind| format!("{part}.{kind}"));
    let mut names: Vec<String> = parts.into_iter().flat_map(of_part).collect();
    names.extend(["index.html", "machine.txt"].map(str::to_owned));
    names.sort_unstable();
    names
}
