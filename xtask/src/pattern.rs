//! Patterns of text that are compiled once.

/// A regular expression, in pieces, that is compiled when it is first used.
macro_rules! regex {
    ($($piece:literal),+ $(,)?) => {
        std::sync::LazyLock::new(|| {
            regex_lite::Regex::new(concat!($($piece),+)).expect("a pattern that tests use")
        })
    };
}
pub(crate) use regex;
