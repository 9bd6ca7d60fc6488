//! Regular expressions that are compiled only once.

macro_rules! regex {
    ($($piece:literal),+ $(,)?) => {
        std::sync::LazyLock::new(|| {
            regex_lite::Regex::new(concat!($($piece),+)).expect("a pattern that tests use")
        })
    };
}
pub(crate) use regex;
