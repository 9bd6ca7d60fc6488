//! Completions for a shell.

use crate::{Result, print};
use clap::Command;
use clap_complete::{Shell, generate};
use std::process::ExitCode;

/// Prints the script that completes the arguments of `command` in `shell`.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(mut command: Command, shell: Shell) -> Result<ExitCode> {
    let (name, mut text) = (command.get_name().to_owned(), Vec::new());
    generate(shell, &mut command, name, &mut text);
    print(&text)
}
