//! Manual pages, from the definition of a command line.

use crate::{Failure, Result, print};
use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Prints the manual page of a command.
///
/// # Errors
/// Standard output cannot be written.
pub fn man_page(command: Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text).map_err(|error| failed(&error))?;
    print(&text)
}

/// Writes the manual pages of a command and of its subcommands at all levels into `folder`. Makes
/// the folder if it is missing. Leaves out hidden subcommands, and pages whose name, such as
/// `nowait-run`, `is_wanted` refuses.
///
/// # Errors
/// The folder or a page cannot be written.
pub fn man_pages(
    command: Command,
    folder: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<ExitCode> {
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write(command, folder, &is_wanted).map_err(|error| failed(&error))?;
    Ok(ExitCode::SUCCESS)
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(format!("man page: {error}"))
}

fn write(command: Command, folder: &Path, is_wanted: &dyn Fn(&str) -> bool) -> io::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write(below.clone(), folder, is_wanted)?;
    }
    if is_wanted(command.get_display_name().unwrap_or_else(|| command.get_name())) {
        Man::new(command).generate_to(folder)?;
    }
    Ok(())
}
