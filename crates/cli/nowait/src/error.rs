//! The one error of the command: a line for the reader and an exit code for the shell.

use nowait_server::printable;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why the command could not do what it was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

/// The result of anything that can fail here.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Is a failure: exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 1 }
    }

    /// Is wrong usage: exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 2 }
    }

    /// Ends with another code: 126 or 127 for a program that cannot be executed.
    pub(crate) fn with_code(self, code: u8) -> Failure {
        Failure { code, ..self }
    }

    /// Prints the line and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        say(&self.message);
        ExitCode::from(self.code)
    }
}

/// Says something on the standard error; nothing comes of it where that cannot be written.
pub(crate) fn say(message: impl fmt::Display) {
    let message = message.to_string();
    let line = format!("nowait: {}\n", printable::line(&message));
    let _ = io::stderr().write_all(line.as_bytes());
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
