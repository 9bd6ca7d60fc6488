//! The public API of a crate, read from the pages that rustdoc makes of it.
//!
//! The list has a line for each declaration, public method and implemented trait: the code of the
//! pages, without the prose. The list leaves out the methods of implemented traits, because the
//! traits define them. It also leaves out methods that come by `Deref` and blanket
//! implementations, which change with the version of the standard library.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use regex_lite::Regex;

use crate::pattern::regex;

/// Traits that the compiler implements by itself, and on which programs depend.
const AUTOMATIC: &[&str] = &["Send", "Sync", "Unpin"];

/// Traits whose implementations programs cannot use.
const INTERNAL: &[&str] = &["Drop", "StructuralPartialEq"];

/// The element of a page that unfolds a long declaration.
static FOLDED: LazyLock<Regex> = regex!(r"(?s)<summary.*?</summary>");
static TAG: LazyLock<Regex> = regex!(r"<[^>]*>");
/// The link to an item's page in the index, relative to the crate's folder: `choice/fn.parse.html`.
static PAGE: LazyLock<Regex> = regex!(r#"<li><a href="(([^".][^"]*/)?(\w+)\.(\w+)\.html)""#);
/// The title of a section (h2), or the header of an implementation (h3) or of an item in one.
static PART: LazyLock<Regex> =
    regex!(r#"(?s)<h2 id="([^"]*)"|<h([345])[^>]*class="code-header">(.*?)</h[345]>"#);

pub(crate) fn list(folder: &Path) -> Result<Vec<String>> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let crate_name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Vec::new();
    for page in PAGE.captures_iter(&read("all.html")?) {
        let (path, modules) = (&page[1], page.get(2).map_or("", |it| it.as_str()));
        let item = format!("{crate_name}::{}{}", modules.replace('/', "::"), &page[4]);
        let lines = lines(&page[3], &read(path)?)
            .with_context(|| format!("{path}: rustdoc lays its pages out in another way"))?;
        found.extend(lines.into_iter().map(|line| format!("{item}: {line}")));
    }
    ensure!(!found.is_empty(), "{}: rustdoc names no items", folder.display());
    found.sort();
    Ok(found)
}

fn lines(kind: &str, html: &str) -> Option<Vec<String>> {
    let (_, rest) = html.split_once("<pre class=\"rust item-decl\"><code>")?;
    let (declaration, rest) = rest.split_once("</code></pre>")?;
    let mut found = vec![text(declaration)];
    // A type alias has the methods and traits of its type, whose own page lists them.
    if kind == "type" {
        return Some(found);
    }
    let (mut section, mut implementation) = ("", String::new());
    for part in PART.captures_iter(rest) {
        let Some(code) = part.get(3).map(|code| text(code.as_str())) else {
            section = part.get(1)?.as_str();
            continue;
        };
        let (is_method, own) = (&part[2] != "3", format!("{implementation}: {code}"));
        if !is_method {
            implementation.clone_from(&code);
        }
        match (section, is_method) {
            ("implementations", true) => found.push(own),
            ("trait-implementations", true) if code.starts_with("type ") => found.push(own),
            ("trait-implementations" | "foreign-impls", false) if !implements(&code, INTERNAL) => {
                found.push(code);
            }
            ("synthetic-implementations", false) if implements(&code, AUTOMATIC) => {
                found.push(code);
            }
            _ => {}
        }
    }
    Some(found)
}

fn implements(implementation: &str, traits: &[&str]) -> bool {
    let before = implementation.split(" for ").next().unwrap_or_default();
    traits.contains(&before.rsplit([' ', '!']).next().unwrap_or_default())
}

fn text(html: &str) -> String {
    let seen = FOLDED.replace_all(html, "").replace("<div", " <div");
    let mut seen = TAG.replace_all(&seen, "").into_owned();
    let signs = ["&lt;<", "&gt;>", "&quot;\"", "&#39;'", "&nbsp; ", "&amp;&"];
    for (written, meant) in signs.map(|sign| sign.split_at(sign.len() - 1)) {
        seen = seen.replace(written, meant);
    }
    // rustdoc's mark of "notable" traits is not code.
    seen.replace('ⓘ', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = "<h1>Struct</h1><pre class=\"rust item-decl\"><code>pub struct \
        Q&lt;T, B = <a href=\"x\">Vec</a>&lt;u8&gt;&gt; { <span>/* private fields */</span> }\
        </code></pre><h2 id=\"safety\"><a>§</a>Safety</h2>\
        <h2 id=\"implementations\" class=\"section-header\">I</h2>\
        <h3 class=\"code-header\">impl&lt;T&gt; Q&lt;T&gt;</h3>\
        <h4 class=\"code-header\">pub fn <a>get</a>&lt;I&gt;(&amp;self) -&gt; \
        <a>I</a><div class=\"where\">where\n    I: <a>Copy</a>,</div></h4>\
        <h5 id=\"errors\">Errors</h5>\
        <h2 id=\"deref-methods-%5BT%5D\">D</h2><h4 class=\"code-header\">pub fn len()</h4>\
        <h2 id=\"trait-implementations\">T</h2><h3 class=\"code-header\">impl Drop for Q</h3>\
        <h4 class=\"code-header\">fn drop(&amp;mut self)</h4>\
        <h3 class=\"code-header\">impl Deref for Q</h3>\
        <h4 class=\"code-header\">type Target = [u8]</h4>\
        <h2 id=\"synthetic-implementations\">A</h2>\
        <h3 class=\"code-header\">impl !Sync for Q</h3>\
        <h3 class=\"code-header\">impl Freeze for Q</h3>\
        <h2 id=\"blanket-implementations\">B</h2><h3 class=\"code-header\">impl Any for T</h3>";

    #[test]
    fn a_page_gives_what_a_program_can_use() {
        let expected = [
            "pub struct Q<T, B = Vec<u8>> { /* private fields */ }",
            "impl<T> Q<T>: pub fn get<I>(&self) -> I where I: Copy,",
            "impl Deref for Q",
            "impl Deref for Q: type Target = [u8]",
            "impl !Sync for Q",
        ];
        assert_eq!(lines("struct", HTML).unwrap(), expected);
        assert_eq!(lines("type", HTML).unwrap(), expected[..1]);
        assert_eq!(lines("struct", "<h1>Struct</h1>"), None);
    }
}
