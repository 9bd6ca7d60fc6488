//! The options in the environment, as it was when the library was loaded.

use nowait_engine::Options;
use nowait_sys::environment::kept;

/// If the library has not kept its variables at load, reads the current environment.
pub(crate) fn options() -> Options {
    let Some(kept) = kept() else { return Options::from_env() };
    Options::parse(|name| Some(String::from_utf8_lossy(kept.value(name)?).into_owned()))
}

/// Returns `true` if the variable was set when the library was loaded, or if this is unknown.
pub(crate) fn may_have(name: &str) -> bool {
    kept().is_none_or(|kept| kept.value(name).is_some())
}
