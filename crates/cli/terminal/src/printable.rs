//! Escapes text for a terminal, so that names of files and images cannot control the terminal.

use std::borrow::Cow;

/// Escapes control characters except newlines and tabs. Also escapes characters that change the
/// direction of the text.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden_in_lines, |c| c.escape_default().to_string())
}

/// Escapes the characters that [`printable`] escapes, and also newlines and tabs, so that the
/// result is one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden, |c| c.escape_default().to_string())
}

/// Escapes the characters that [`printable`] escapes, in the notation of JSON, so that the strings
/// in the JSON keep their values.
pub fn json(text: &str) -> Cow<'_, str> {
    // No escaped character has more than 16 bits.
    escape(text, is_hidden_in_lines, |c| format!("\\u{:04x}", u32::from(c)))
}

fn is_hidden_in_lines(c: char) -> bool {
    is_hidden(c) && c != '\n' && c != '\t'
}

fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

fn escape(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_escaped(c) {
            true => escaped.push_str(&escape(c)),
            false => escaped.push(c),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_control_the_terminal() {
        assert_eq!(printable("\x1b[31mred\x07\u{9b}2J"), "\\u{1b}[31mred\\u{7}\\u{9b}2J");
        assert_eq!(printable("a\u{202e}gnp.exe"), "a\\u{202e}gnp.exe");
        assert_eq!(line("a\rb\nc\td"), "a\\rb\\nc\\td");
    }

    #[test]
    fn json_says_what_it_said() {
        let name = "\x1b[31m\x7f\u{9b}2J\u{200f}\u{2069}\n漢\\";
        let text = serde_json::to_string_pretty(&[name]).unwrap();
        let shown = json(&text);
        assert!(!shown.contains(is_hidden_in_lines), "{shown:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [name]);
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let text = "ä 漢 'q' \\ %s\n\tb\n";
        assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
    }
}
