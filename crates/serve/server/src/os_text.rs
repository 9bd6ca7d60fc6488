//! Text of the command line that need not be UTF-8, because names of files are bytes.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

pub(crate) fn split_once(text: &OsStr, separator: u8) -> Option<(&OsStr, &OsStr)> {
    let place = text.as_bytes().iter().position(|byte| *byte == separator)?;
    Some(around(text, place))
}

pub(crate) fn rsplit_once(text: &OsStr, separator: u8) -> Option<(&OsStr, &OsStr)> {
    let place = text.as_bytes().iter().rposition(|byte| *byte == separator)?;
    Some(around(text, place))
}

fn around(text: &OsStr, place: usize) -> (&OsStr, &OsStr) {
    let (before, rest) = text.as_bytes().split_at(place);
    (OsStr::from_bytes(before), OsStr::from_bytes(&rest[1..]))
}

pub(crate) fn strip_prefix<'a>(text: &'a OsStr, prefix: &str) -> Option<&'a OsStr> {
    text.as_bytes().strip_prefix(prefix.as_bytes()).map(OsStr::from_bytes)
}

/// Splits `[NAME=]PATH`. Without NAME, a path that contains `=` needs a `/` before the `=`, as in
/// `./a=b`.
///
/// # Errors
/// The name is not UTF-8. The protocols require names in UTF-8.
pub(crate) fn named_path(text: &OsStr) -> Result<(Option<&str>, &OsStr), String> {
    match split_once(text, b'=') {
        Some((name, path)) if !name.as_bytes().contains(&b'/') && !path.is_empty() => {
            let name = name.to_str().ok_or("NAME before = must be UTF-8: begin a path with ./")?;
            Ok((Some(name), path))
        }
        _ => Ok((None, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(bytes: &[u8]) -> &OsStr {
        OsStr::from_bytes(bytes)
    }

    #[test]
    fn text_is_split_at_bytes() {
        let text = os(b"a=\xff=c");
        assert_eq!(split_once(text, b'='), Some((os(b"a"), os(b"\xff=c"))));
        assert_eq!(rsplit_once(text, b'='), Some((os(b"a=\xff"), os(b"c"))));
        assert_eq!((split_once(text, b','), rsplit_once(text, b',')), (None, None));
        assert_eq!(strip_prefix(text, "a="), Some(os(b"\xff=c")));
    }

    #[test]
    fn a_name_is_utf_8_and_a_path_need_not_be() {
        assert_eq!(named_path(os(b"vm=\xff")), Ok((Some("vm"), os(b"\xff"))));
        assert_eq!(named_path(os(b"/\xff=a")), Ok((None, os(b"/\xff=a"))));
        assert!(named_path(os(b"\xff=a")).is_err());
    }
}
