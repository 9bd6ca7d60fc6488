//! Errors: the failure that all programs of nowait report, with the action that failed.

use nowait_sys::Errno;
pub use nowait_terminal::{Failure, Result};

pub trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what())))
    }
}

pub fn failed(what: &str) -> impl Fn(Errno) -> Failure + '_ {
    move |errno| Failure::new(format!("{what}: {errno}"))
}
