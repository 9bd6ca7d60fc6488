//! Builds the documentation as a book, with rustdoc beside it.
//!
//! ```text
//!   docs/, ARCHITECTURE.md, CONTRIBUTING.md ─► target/book ─ mdbook ─► dist/docs
//!   the crates ─────────────────────────────── cargo doc ────────────► dist/docs/api
//! ```
//!
//! The documents beside `docs/` are pages of the book too: they are copied into it, and the links
//! to and from them are made to fit.

use std::fs;
use std::path::{Path, PathBuf};

use crate::examples;
use crate::process::{self, Result};
use crate::tidy::links;
use crate::tool::Tool;

/// Of the version that the book was tried with.
const MDBOOK: Tool = Tool {
    package: "mdbook",
    version: "0.5.4",
    says: "mdbook v0.5.4",
    ask: &["--version"],
    features: &["--no-default-features", "--features", "search"],
};

/// Builds the book into `dist/docs`.
///
/// # Errors
/// mdbook cannot be installed, or a page or an item of the crates cannot be built.
pub(crate) fn run() -> Result {
    let (target, root) = (process::target(), process::root());
    let (staged, built) = (target.join("book"), root.join("dist/docs"));
    for folder in [&staged, &built] {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| describe(folder, &error))?;
        }
    }
    stage(&root, &staged)?;
    let program = MDBOOK.program()?;
    let args = ["build", &staged.display().to_string(), "-d", &built.display().to_string()];
    process::stream(process::command(&program, &args), |line| println!("{line}"))?;
    let args = ["doc", "--workspace", "--no-deps", "--lib", "--features", examples::FEATURES];
    process::stream(process::command("cargo", &args), |line| println!("{line}"))?;
    copy(&target.join("doc"), &built.join("api"))?;
    check_reference(&root, &built)?;
    println!("docs: {}", built.join("index.html").display());
    Ok(())
}

/// Looks whether the page that leads to rustdoc does so: no other check can.
fn check_reference(root: &Path, built: &Path) -> Result {
    let page = root.join("docs/api.md");
    let text = fs::read_to_string(&page).map_err(|error| describe(&page, &error))?;
    let generated =
        links::links(&text).into_iter().filter(|(_, target)| target.starts_with("api/"));
    for (_, target) in generated {
        if !built.join(&target).exists() {
            return Err(format!("docs/api.md: rustdoc has made no {target}"));
        }
    }
    Ok(())
}

/// Puts the pages where mdbook finds them.
fn stage(root: &Path, staged: &Path) -> Result {
    copy(&root.join("docs"), &staged.join("docs"))?;
    copy(&root.join("book.toml"), &staged.join("book.toml"))?;
    let mut pages: Vec<String> = links::BESIDE.iter().map(|page| (*page).to_owned()).collect();
    find_pages(root, "docs", &mut pages)?;
    for page in pages {
        let from = root.join(&page);
        let text = fs::read_to_string(&from).map_err(|error| describe(&from, &error))?;
        let to = staged.join(place(&page));
        fs::write(&to, fit(&page, &text)).map_err(|error| describe(&to, &error))?;
    }
    Ok(())
}

/// Adds the documents below `folder`.
fn find_pages(root: &Path, folder: &str, pages: &mut Vec<String>) -> Result {
    let path = root.join(folder);
    for entry in fs::read_dir(&path).map_err(|error| describe(&path, &error))?.flatten() {
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            find_pages(root, &name, pages)?;
        } else if entry.path().extension().is_some_and(|extension| extension == "md") {
            pages.push(name);
        }
    }
    Ok(())
}

/// Returns where a page of the tree is in the book's, where the first page of a folder is its
/// index: mdbook renames a README too, but not the links to it from other folders.
fn place(page: &str) -> String {
    match page.strip_suffix("/README.md") {
        Some(folder) => format!("{folder}/index.md"),
        None if links::BESIDE.contains(&page) => format!("docs/{page}"),
        None => page.to_owned(),
    }
}

/// Returns the text of a page with its links as the book needs them.
fn fit(page: &str, text: &str) -> String {
    let mut fitted = String::with_capacity(text.len());
    let mut at = 0;
    for (offset, target) in links::links(text) {
        let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
        if target.contains("://") || file.is_empty() {
            continue;
        }
        let leads_to = place(&links::resolve(page, file));
        let start = offset + "](".len();
        fitted.push_str(&text[at..start]);
        fitted.push_str(&relative(&place(page), &leads_to));
        if !heading.is_empty() {
            fitted.push('#');
            fitted.push_str(heading);
        }
        at = start + target.len();
    }
    fitted.push_str(&text[at..]);
    fitted
}

/// Returns the way from one page to another.
fn relative(from: &str, to: &str) -> String {
    let folder = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let (mut from, to) = (folder(from), folder(to));
    from.pop();
    let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..".to_owned(), from.len() - same);
    up.chain(to[same..].iter().cloned()).collect::<Vec<_>>().join("/")
}

/// Copies a file, or a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result {
    if !from.is_dir() {
        return fs::copy(from, to).map(drop).map_err(|error| describe(from, &error));
    }
    fs::create_dir_all(to).map_err(|error| describe(to, &error))?;
    let entries = fs::read_dir(from).map_err(|error| describe(from, &error))?;
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    for path in paths {
        copy(&path, &to.join(path.file_name().expect("a name in a folder")))?;
    }
    Ok(())
}

fn describe(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_fit_when_the_documents_beside_are_in_the_book() {
        let text = "[a](docs/a.md), [b](docs/deep/b.md#x) `[c](d)` [e](https://e/f)";
        let fitted = "[a](a.md), [b](deep/b.md#x) `[c](d)` [e](https://e/f)";
        assert_eq!(fit("ARCHITECTURE.md", text), fitted);
        let text = "[A](../../ARCHITECTURE.md#the-rules) [b](b.md) [c](../c/README.md) [d](#d)";
        let fitted = "[A](../ARCHITECTURE.md#the-rules) [b](b.md) [c](../c/index.md) [d](#d)";
        assert_eq!(fit("docs/deep/a.md", text), fitted);
    }
}
