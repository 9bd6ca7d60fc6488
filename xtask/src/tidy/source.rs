//! A source file, and its text without comments and strings.

use std::ops::Range;
use std::sync::LazyLock;

use regex_lite::Regex;

use super::Finding;
use crate::pattern::regex;

pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
    /// `text` with spaces in place of comments and strings, in Rust and C.
    pub(super) code: String,
}

/// Names of files that are checked although they have none of the extensions below.
const CHECKED_NAMES: &[&str] = &["Makefile", "run"];

const CHECKED_EXTENSIONS: &[&str] = &["rs", "c", "h", "map", "md", "sh", "toml", "py"];

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Source {
        let (path, text) = (path.to_owned(), text.to_owned());
        let mut source = Source { path, code: text.clone(), text };
        if source.is_code() {
            source.code = blank_code(&source.text);
        }
        source
    }

    pub(super) fn is_checked(path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        CHECKED_NAMES.contains(&name) || CHECKED_EXTENSIONS.contains(&extension(path))
    }

    pub(super) fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    pub(super) fn is_code(&self) -> bool {
        ["rs", "c", "h"].contains(&self.extension())
    }

    pub(super) fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/")
    }

    pub(super) fn extension(&self) -> &str {
        extension(&self.path)
    }

    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }

    pub(super) fn finding(&self, offset: usize, advice: impl Into<String>) -> Finding {
        self.finding_on(self.line_of(offset), advice)
    }

    pub(super) fn finding_on(&self, line: usize, advice: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, advice: advice.into() }
    }

    pub(super) fn test_ranges(&self) -> Vec<Range<usize>> {
        if self.is_test() || self.path.ends_with("/tests.rs") {
            return vec![Range { start: 0, end: self.code.len() }];
        }
        let attributes = self.code.match_indices("#[cfg(");
        attributes.filter_map(|(start, _)| self.test_item(start)).collect()
    }

    /// Returns the range from an attribute at `start` to the end of its item, if the attribute
    /// limits the item to tests.
    fn test_item(&self, start: usize) -> Option<Range<usize>> {
        let rest = &self.code[start..];
        let attribute = &rest[..rest.find(']')?];
        let asks = words(attribute).any(|(_, word)| word == "test");
        if !asks || attribute.contains("not(test") {
            return None;
        }
        let opening = start + rest.find(['{', ';'])?;
        match self.code.as_bytes()[opening] {
            b'{' => Some(start..closing_brace(&self.code, opening)?),
            _ => Some(start..opening),
        }
    }
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |parts| parts.1)
}

pub(super) fn closing_brace(code: &str, opening: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(opening) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Comments, and literals of strings and characters, in Rust and C.
pub(super) static NO_CODE: LazyLock<Regex> = regex!(
    r#"(?s)//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\[^\n']+|\\'|[^\\'\n])'"#,
    r###"|\b[bc]?r(?:"[^"]*"|#".*?"#|##".*?"##|###".*?"\#\#\#)"###,
);

/// Blocks of a document between fences.
pub(super) static FENCED: LazyLock<Regex> = regex!(r"(?ms)^ *```.*?(?:^ *```[^\n]*|\z)");

/// Blocks of a document between fences, and text between backticks on one line.
static QUOTED: LazyLock<Regex> = regex!(r"(?ms)^ *```.*?(?:^ *```[^\n]*|\z)|`[^`\n]*`");

fn blank_code(text: &str) -> String {
    blank(text, &NO_CODE)
}

pub(super) fn mask_code(document: &str) -> String {
    blank(document, &QUOTED)
}

pub(super) fn blank(text: &str, pattern: &Regex) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for found in pattern.find_iter(text) {
        for byte in bytes[found.range()].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
    }
    String::from_utf8(bytes).expect("whole characters were blanked")
}

pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let parts = text.split(move |c| !inside(c)).filter(|word| !word.is_empty());
    parts.map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_and_lines_stay() {
        let text = "a /* b * c */ e // f\n\"g\\\"h\" i r#\"j\"k\"# l b'm' 'n' <'o> '\\'' p\n";
        let code = blank_code(text);
        assert_eq!(code.len(), text.len());
        let left: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(left, "a e i l b <'o> p");
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn characters_beyond_ascii_are_blanked_whole() {
        assert_eq!(blank_code("'é' 'a' \"ü\" x /* 日 */ y").split_whitespace().count(), 2);
    }

    #[test]
    fn raw_identifiers_are_code() {
        assert_eq!(blank_code("r#fn + br"), "r#fn + br");
    }

    #[test]
    fn test_modules_are_found_and_their_opposite_is_not() {
        let text = "fn a() {}\n#[cfg(all(test, loom))]\nmod tests { fn b() {} }\n\
                    #[cfg(not(test))]\nmod c { }\n";
        let source = Source::new("crates/x/src/lib.rs", text);
        let ranges = source.test_ranges();
        assert_eq!(ranges.len(), 1);
        assert!(source.code[ranges[0].clone()].contains("fn b"));
        assert_eq!(Source::new("tests/src/lib.rs", text).test_ranges()[0].start, 0);
    }

    #[test]
    fn a_statement_for_tests_is_a_test_range_and_the_next_one_is_not() {
        let text = "fn a() {\n#[cfg(test)]\ncrate::b::c();\ncrate::d::e();\n}\n";
        let source = Source::new("crates/x/src/lib.rs", text);
        let range = source.test_ranges()[0].clone();
        assert!(source.code[range.clone()].ends_with("crate::b::c()"));
        assert!(!source.code[range].contains("crate::d"));
    }

    #[test]
    fn words_have_their_offsets() {
        assert_eq!(words("a_b::c").collect::<Vec<_>>(), [(0, "a_b"), (5, "c")]);
    }
}
