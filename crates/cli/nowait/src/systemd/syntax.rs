//! The text of a unit file. Source: systemd.syntax(7), and systemd.exec(5) for quotes.

use std::iter::Peekable;
use std::str::Chars;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) section: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

/// Skips lines that are neither an assignment nor the head of a section.
pub(crate) fn parse(text: &str) -> Vec<Assignment> {
    let mut found = Vec::new();
    let mut section = String::new();
    for line in whole_lines(text.trim_start_matches('\u{feff}')) {
        let line = line.trim_matches(is_blank);
        if let Some(rest) = line.strip_prefix('[') {
            rest.strip_suffix(']').unwrap_or_default().clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let trimmed = |text: &str| text.trim_matches(is_blank).to_owned();
            let (key, value) = (trimmed(key), trimmed(value));
            found.push(Assignment { section: section.clone(), key, value });
        }
    }
    found
}

/// Joins a line that ends with an odd number of backslashes to the next; a space replaces the last
/// backslash. Drops comment lines.
fn whole_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut begun: Option<String> = None;
    for line in text.lines() {
        if line.trim_start_matches(is_blank).starts_with(['#', ';']) {
            continue;
        }
        let mut whole = begun.take().unwrap_or_default();
        whole.push_str(line);
        let backslashes = whole.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if backslashes % 2 == 1 {
            whole.pop();
            whole.push(' ');
            begun = Some(whole);
        } else {
            lines.push(whole);
        }
    }
    lines.extend(begun);
    lines
}

/// Splits a value at its blanks. Resolves quotes and escapes, but not specifiers. At a syntax
/// error, returns the words before the error, as systemd does.
pub(crate) fn words(value: &str) -> Vec<String> {
    let mut letters = value.chars().peekable();
    let mut words = Vec::new();
    loop {
        while letters.next_if(|&letter| is_blank(letter)).is_some() {}
        if letters.peek().is_none() {
            return words;
        }
        match word(&mut letters) {
            Some(word) => words.push(word),
            None => return words,
        }
    }
}

fn word(letters: &mut Peekable<Chars>) -> Option<String> {
    let mut bytes = Vec::new();
    let mut quote = None;
    while let Some(letter) = letters.next_if(|&it| quote.is_some() || !is_blank(it)) {
        match letter {
            '\\' => escape(letters, &mut bytes)?,
            _ if quote == Some(letter) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(letter),
            _ => push(letter, &mut bytes),
        }
    }
    if quote.is_some() { None } else { String::from_utf8(bytes).ok() }
}

fn push(letter: char, bytes: &mut Vec<u8>) {
    bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes());
}

/// Decodes the escape after a backslash into `bytes`; `None` if the escape is unknown or invalid.
fn escape(letters: &mut Peekable<Chars>, bytes: &mut Vec<u8>) -> Option<()> {
    let letter = letters.next()?;
    let mut number = |first: Option<char>, more: usize, radix: u32| {
        let digits: String = first.into_iter().chain(letters.by_ref().take(more)).collect();
        let right = digits.len() == usize::from(first.is_some()) + more;
        u32::from_str_radix(&digits, radix).ok().filter(|&number| right && number != 0)
    };
    match letter {
        'a' => bytes.push(7),
        'b' => bytes.push(8),
        'f' => bytes.push(12),
        'n' => bytes.push(b'\n'),
        'r' => bytes.push(b'\r'),
        't' => bytes.push(b'\t'),
        'v' => bytes.push(11),
        's' => bytes.push(b' '),
        '\\' | '"' | '\'' => push(letter, bytes),
        'x' => bytes.push(u8::try_from(number(None, 2, 16)?).ok()?),
        'u' => push(char::from_u32(number(None, 4, 16)?)?, bytes),
        'U' => push(char::from_u32(number(None, 8, 16)?)?, bytes),
        '0'..='7' => bytes.push(u8::try_from(number(Some(letter), 2, 8)?).ok()?),
        _ => return None,
    }
    Some(())
}

/// Quotes `word` so that [`words`] and systemd read it back as one word.
pub(crate) fn quote(word: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in word.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Vec<(String, String)> {
        parse(text).into_iter().map(|it| (it.key, it.value)).collect()
    }

    #[test]
    fn continued_lines_comments_and_blanks_are_systemd_s() {
        let text = "\u{feff}; one\n[Service]\r\n A = b\\\n  c\\\n# not me\n;nor me\n d \n\
                    B=x\\\\\nC=\nno assignment\n[Broken\nD=1\n[Unit]\nE=a=b\nF=end\\";
        let found = parse(text);
        let owned = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let expected = [
            owned("A", "b   c  d"),
            owned("B", "x\\\\"),
            owned("C", ""),
            owned("D", "1"),
            owned("E", "a=b"),
            owned("F", "end"),
        ];
        assert_eq!(values(text), expected);
        let sections: Vec<_> = found.iter().map(|it| it.section.as_str()).collect();
        assert_eq!(sections, ["Service", "Service", "Service", "", "Unit", "Unit"]);
    }

    #[test]
    fn words_are_split_and_unquoted_as_systemd_does() {
        let cases: &[(&str, &[&str])] = &[
            ("a  b\tc", &["a", "b", "c"]),
            (r#""A=b c" 'D=e "f"' G="h i"j"#, &["A=b c", "D=e \"f\"", "G=h ij"]),
            (r"A=\x41\102\sC\t\u00e9\\", &["A=AB C\t\u{e9}\\"]),
            (r#"A=%i$B "" C"#, &["A=%i$B", "", "C"]),
            (r#"A=1 "B=2"#, &["A=1"]),
            (r"A=1 B=\q C=3", &["A=1"]),
            (r"A=1 B=\x0", &["A=1"]),
            (r"A=1 B=\xff", &["A=1"]),
            ("", &[]),
        ];
        for (value, expected) in cases {
            assert_eq!(words(value), *expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(word in "[ -~éß\\t\\n\\r]{0,20}", other in "[a-z]{1,3}") {
            let line = format!("{} {other}", quote(&word));
            prop_assert_eq!(words(&line), vec![word, other]);
        }

        #[test]
        fn any_text_is_read_without_a_panic(
            text in any::<String>(),
            ascii in "[\\[\\]a\\\\='\" \n#x0u]{0,60}",
        ) {
            for text in [text, ascii] {
                for assignment in parse(&text) {
                    words(&assignment.value);
                }
            }
        }
    }
}
