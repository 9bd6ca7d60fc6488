//! Standard output.

use crate::{Failure, Result, printable};
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;

/// Writes text to standard output; escapes control characters except newlines and tabs. A reader
/// that has closed the pipe (`| head`) is not an error.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &[u8]) -> Result<ExitCode> {
    write(&printable::printable(&String::from_utf8_lossy(text)))
}

/// Writes `it` to standard output as JSON, indented for people. A closed pipe is not an error.
///
/// # Errors
/// `it` cannot be serialized, or standard output cannot be written.
pub fn print_json(it: &impl Serialize) -> Result<ExitCode> {
    let text = serde_json::to_string_pretty(it).map_err(|error| Failure::new(error.to_string()))?;
    write(&(printable::json(&text) + "\n"))
}

fn write(text: &str) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
