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
    let known = makers.len();
    for (name, body) in invocations(&source.code, "macro_rules") {
        let uses = |maker: &&str| body.contains(&format!("{maker}!"));
        if body.contains("#[test]") || makers.iter().any(uses) {
            makers.extend(words(name).map(|(_, word)| word));
        }
    }
    makers.len() > known
}

/// Returns what stands before and in the braces or parentheses behind each `name!`.
fn invocations<'a>(
    code: &'a str,
    name: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    code.match_indices(name).filter_map(move |(at, _)| {
        let rest = code[at + name.len()..].strip_prefix('!')?;
        let is_whole = code[..at].chars().last().is_none_or(|c| !c.is_alphanumeric() && c != '_');
        let opening = rest.find(['{', '(']).filter(|_| is_whole)?;
        let end = match rest.as_bytes()[opening] {
            b'{' => closing_brace(rest, opening)?,
            _ => opening + rest[opening..].find(';').unwrap_or(rest.len() - opening),
        };
        Some((&rest[..opening], &rest[opening..end]))
    })
}

/// Returns the names of the tests of a file.
fn tests<'a>(source: &'a Source, makers: &HashSet<&'a str>) -> HashSet<&'a str> {
    let code = source.code.as_str();
    let functions = code.match_indices("#[test]").filter_map(|(at, _)| {
        let mut behind = words(&code[at..]).skip_while(|(_, word)| *word != "fn");
        behind.nth(1).map(|(_, name)| name)
    });
    let made = makers.iter().flat_map(|maker| invocations(code, maker));
    let made = made.flat_map(|(_, body)| words(body).map(|(_, word)| word));
    functions.chain(made).collect()
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
