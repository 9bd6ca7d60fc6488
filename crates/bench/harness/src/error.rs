//! The one error of this crate: a line for the reader and an exit code for the shell.

use std::fmt;

use nowait_sys::Errno;

/// The reason why a measurement could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchError {
    message: String,
    usage: bool,
}

/// The result of anything that can fail in this crate.
pub type Result<T> = std::result::Result<T, BenchError>;

impl BenchError {
    /// Makes an error of the run: something is missing, full or refused.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: false }
    }

    /// Makes an error of the command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: true }
    }

    /// Returns `true` if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        self.usage
    }

    /// Returns the exit code of the process: 1 for a failure, 2 for wrong usage.
    pub fn exit_code(&self) -> u8 {
        if self.usage { 2 } else { 1 }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BenchError {}

/// Adds the action that failed to an error of the operating system.
pub trait Context<T> {
    /// Turns an error into "WHAT: error".
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| BenchError::failed(format!("{}: {error}", what())))
    }
}

/// Turns an errno into an error whose message begins with `what`.
pub fn failed(what: &str) -> impl Fn(Errno) -> BenchError + '_ {
    move |errno| BenchError::failed(format!("{what}: {errno}"))
}
