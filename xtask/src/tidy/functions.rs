//! The length of functions.

use super::Finding;
use super::source::{Source, closing_brace, words};

const LINES_MAX: usize = 70;

/// Functions that were longer when the rule came: path, name, lines. They may shrink, never grow,
/// and the number here follows them down.
const RATCHET: &[(&str, &str, usize)] = &[];

/// No function is longer than 70 lines, from `fn` to its closing brace.
pub(super) fn length(source: &Source, findings: &mut Vec<Finding>) {
    if !source.is_rust() {
        return;
    }
    for function in functions(source) {
        let (name, lines) = (function.name, function.lines);
        let known = RATCHET.iter().find(|entry| entry.0 == source.path && entry.1 == name);
        let lines_max = known.map_or(LINES_MAX, |entry| entry.2);
        let advice = if lines > lines_max {
            format!("`{name}` has {lines} lines, at most {lines_max}: give its steps names")
        } else if known.is_some() && lines < lines_max {
            format!("`{name}` has shrunk to {lines} lines: lower its entry in RATCHET")
        } else {
            continue;
        };
        findings.push(source.finding(function.offset, advice));
    }
}

struct Function<'a> {
    name: &'a str,
    offset: usize,
    lines: usize,
}

/// Finds the functions that have a body.
fn functions(source: &Source) -> Vec<Function<'_>> {
    let code = &source.code;
    let mut found = Vec::new();
    let mut words = words(code).peekable();
    while let Some((offset, word)) = words.next() {
        let Some(&(at, name)) = words.peek() else { break };
        // `fn(u32)` is a type: no name follows with only white space between.
        if word != "fn" || !code[offset + 2..at].trim().is_empty() {
            continue;
        }
        let Some(opening) = body(code, at + name.len()) else { continue };
        let Some(closing) = closing_brace(code, opening) else { continue };
        let lines = source.line_of(closing) - source.line_of(offset) + 1;
        found.push(Function { name, offset, lines });
    }
    found
}

/// Returns where the body opens, if the signature that goes on at `at` has one.
fn body(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(offset),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::check_text;
    use super::*;

    fn with_body(lines: usize) -> String {
        format!("pub fn long<T: Fn()>(x: [u8; 4]) -> u8\nwhere\n{{\n{}}}\n", "x();\n".repeat(lines))
    }

    #[test]
    fn a_long_function_is_caught() {
        let found = check_text(length, "a.rs", &with_body(67));
        assert_eq!(found.len(), 1);
        assert!(found[0].advice.contains("`long` has 71 lines"), "{}", found[0]);
        assert_eq!(check_text(length, "a.rs", &with_body(66)), []);
    }

    #[test]
    fn declarations_and_types_have_no_length() {
        let text = "trait A { fn a(&self); }\ntype B = fn(u8);\nfn c() { /* { */ }\n";
        let source = Source::new("a.rs", text);
        let names: Vec<&str> = functions(&source).iter().map(|function| function.name).collect();
        assert_eq!(names, ["c"]);
    }
}
