//! The error of a command: a line for the reader and an exit code for the shell.

use crate::printable;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// The failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    message: String,
    code: u8,
}

/// The result of a command, or of a part of it.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Makes a failure with exit code 1.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 1 }
    }

    /// Makes a failure for wrong usage, with exit code 2.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 2 }
    }

    /// Replaces the exit code, for example by 127 for a program that is not found.
    #[must_use]
    pub fn with_code(self, code: u8) -> Failure {
        Failure { code, ..self }
    }

    /// Returns the exit code: 1 for a failure, 2 for wrong usage, or another one.
    pub fn exit_code(&self) -> u8 {
        self.code
    }

    /// Prints the message as one line to standard error, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        say(&self.message);
        ExitCode::from(self.code)
    }
}

/// Writes the message as one line to standard error, after `nowait: `. Escapes control characters.
/// Ignores an error of the write.
pub fn say(message: impl fmt::Display) {
    let message = message.to_string();
    let line = format!("nowait: {}\n", printable::line(&message));
    let _ = io::stderr().write_all(line.as_bytes());
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
