//! Builds the documentation as a book, with rustdoc beside it.
//!
//! ```text
//!   docs/, ARCHITECTURE.md, CONTRIBUTING.md ─► target/book/src ─ mdbook ─► dist/docs
//!   the crates ─────────────────────────────── cargo doc ────────────────► dist/docs/docs/api
//! ```
//!
//! The documents beside `docs/` are pages of the book too. All keep their places, so their links
//! fit; only the list of pages is written for the folder above.

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::examples::FEATURES;
use crate::process;
use crate::tidy::BESIDE;
use crate::tool::Tool;

/// Of the version that the book was tried with.
const MDBOOK: Tool = Tool {
    package: "mdbook",
    version: "0.5.4",
    ask: &["--version"],
    features: &["--no-default-features", "--features", "search"],
};

/// Builds the book into `dist/docs`.
pub(crate) fn run() -> Result<()> {
    let (sh, built) = (process::shell()?, process::root().join("dist/docs"));
    let (staged, rustdoc) = (process::target().join("book"), process::target().join("doc"));
    sh.remove_path(&staged)?;
    sh.remove_path(&built)?;
    let pages = sh.create_dir(staged.join("src"))?;
    process::run(cmd!(sh, "cp -r docs {BESIDE...} {pages}"))?;
    sh.copy_file("book.toml", &staged)?;
    sh.write_file(pages.join("SUMMARY.md"), from_above(&sh.read_file("docs/SUMMARY.md")?))?;
    sh.remove_path(pages.join("docs/SUMMARY.md"))?;
    let mdbook = MDBOOK.program()?;
    process::run(cmd!(sh, "{mdbook} build {staged} -d {built}"))?;
    process::run(cmd!(sh, "cargo doc --workspace --no-deps --lib --features {FEATURES}"))?;
    process::run(cmd!(sh, "cp -r {rustdoc} {built}/docs/api"))?;
    // No other check can tell if the page that leads to rustdoc does so.
    for link in sh.read_file("docs/api.md")?.split("](api/").skip(1) {
        let (page, _) = link.split_once(')').context("docs/api.md: a link without an end")?;
        let is_there = built.join("docs/api").join(page).exists();
        ensure!(is_there, "docs/api.md: rustdoc has made no {page}");
    }
    println!("docs: {}", built.join("index.html").display());
    Ok(())
}

/// Returns a list of pages of `docs/` for the folder that it lies in.
fn from_above(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_listed_for_the_folder_above() {
        let summary = "- [A](a.md)\n- [B](../ARCHITECTURE.md)\n";
        assert_eq!(from_above(summary), "- [A](docs/a.md)\n- [B](ARCHITECTURE.md)\n");
    }
}
