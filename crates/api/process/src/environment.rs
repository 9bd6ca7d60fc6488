//! What the library's own variables ask for, as they were when it was loaded.

use nowait::Options;
use nowait_sys::environment::kept_value;

/// Returns the options that the variables ask for; those of now, if none were kept.
pub(crate) fn options() -> Options {
    if kept_value("NOWAIT").is_err() {
        return Options::from_env();
    }
    Options::parse(|name| {
        let value = kept_value(name).ok().flatten()?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

/// Tells whether a variable may have been set.
pub(crate) fn may_have(name: &str) -> bool {
    kept_value(name) != Ok(None)
}
