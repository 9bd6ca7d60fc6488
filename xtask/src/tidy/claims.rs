//! The tests of each file, by name: functions, and what macros make tests of.

use super::source::{Source, closing_brace, words};
use std::collections::{BTreeMap, HashSet};

/// The names of tests, by file.
pub(super) struct Claims<'a>(BTreeMap<&'a str, HashSet<&'a str>>);

impl<'a> Claims<'a> {
    /// Reads the tests of all files.
    pub(super) fn of(sources: &'a [Source]) -> Claims<'a> {
        let rust = || sources.iter().filter(|source| source.is_rust());
        let mut makers = HashSet::new();
        // Those that use others too, however deep.
        while rust().any(|source| add_makers(source, &mut makers)) {}
        Claims(rust().map(|source| (source.path.as_str(), tests(source, &makers))).collect())
    }

    /// Tells whether a file, or one in this folder, has a test of this name.
    pub(super) fn is_in(&self, path: &str, name: &str) -> bool {
        let below = |file: &str| {
            file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.0.iter().any(|(file, names)| below(file) && names.contains(name))
    }

    /// Tells whether there is a test of this name.
    pub(super) fn is_there(&self, name: &str) -> bool {
        self.0.values().any(|names| names.contains(name))
    }
}

/// Adds the macros that a file defines and that make tests; tells whether it is a new one.
fn add_makers<'a>(source: &'a Source, makers: &mut HashSet<&'a str>) -> bool {
    let (code, mut more) = (source.code.as_str(), false);
    for (at, _) in code.match_indices("macro_rules!") {
        let Some((name, body)) = invocation(code, at) else { continue };
        let makes = body.contains("#[test]") || makers.iter().any(|it| uses(body, it));
        more |= makes && makers.insert(name);
    }
    more
}

fn uses(body: &str, maker: &str) -> bool {
    body.match_indices(maker).any(|(at, _)| body[at + maker.len()..].starts_with('!'))
}

/// Returns the first word behind the `!` at or after `at`, and what stands in braces or
/// parentheses there.
fn invocation(code: &str, at: usize) -> Option<(&str, &str)> {
    let from = at + code[at..].find('!')? + 1;
    let opening = from + code[from..].find(['{', '('])?;
    let end = match code.as_bytes()[opening] {
        b'{' => closing_brace(code, opening)?,
        _ => opening + code[opening..].find(';').unwrap_or(code.len() - opening),
    };
    let (_, first) = words(&code[from..]).next()?;
    Some((first, &code[opening..end]))
}

/// Returns the names of the tests of a file.
fn tests<'a>(source: &'a Source, makers: &HashSet<&str>) -> HashSet<&'a str> {
    let code = source.code.as_str();
    let mut found = HashSet::new();
    for (at, _) in code.match_indices("#[test]") {
        let mut behind = words(&code[at..]).skip_while(|(_, word)| *word != "fn");
        found.extend(behind.nth(1).map(|(_, name)| name));
    }
    for maker in makers {
        for (at, _) in code.match_indices(maker) {
            let is_whole = code[..at].chars().last().is_none_or(|c| !c.is_alphanumeric());
            if is_whole
                && code[at + maker.len()..].starts_with('!')
                && let Some((_, body)) = invocation(code, at)
            {
                found.extend(words(body).map(|(_, word)| word));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_what_macros_make_are_tests() {
        let maker = "macro_rules! each { ($name:ident) => { mod $name { #[test] fn it() {} } } }";
        let user = "macro_rules! claims { ($n:ident) => { each!($n); } }\n\
            claims! { a_claim_of_a_macro = \"x\"; }\n#[test]\n#[ignore]\nfn a_plain_test() {}\n\
            fn no_test() { other!(not_made); }\neach!(a_single_one, run);\n";
        let sources = [Source::new("tests/src/lib.rs", maker), Source::new("tests/a.rs", user)];
        let claims = Claims::of(&sources);
        for name in ["a_claim_of_a_macro", "a_plain_test", "a_single_one"] {
            assert!(claims.is_in("tests/a.rs", name) && claims.is_in("tests", name), "{name}");
            assert!(!claims.is_in("tests/src", name));
        }
        assert!(!claims.is_there("no_test") && !claims.is_there("not_made"));
    }
}
