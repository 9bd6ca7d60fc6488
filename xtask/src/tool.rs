//! Programs of crates.io that a command needs: built once, into `target/tools`.

use crate::process::{self, Result};

/// A program of one version, which is the version that it was tried with.
pub(crate) struct Tool {
    /// Also the name of the program.
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// What it answers to `ask`, if it is of this version.
    pub(crate) says: &'static str,
    pub(crate) ask: &'static [&'static str],
    /// How `cargo install` chooses what is built of it.
    pub(crate) features: &'static [&'static str],
}

impl Tool {
    /// Returns the program's name or path; builds it where neither PATH nor an earlier run has it.
    ///
    /// # Errors
    /// It cannot be built.
    pub(crate) fn program(&self) -> Result<String> {
        let tools = process::target().join("tools");
        let own = tools.join("bin").join(self.package).display().to_string();
        for program in [self.package, &own] {
            let answer = process::output(process::command(program, self.ask));
            if answer.is_ok_and(|answer| answer.trim() == self.says) {
                return Ok(program.to_owned());
            }
        }
        println!("installing {} in {} (some minutes, once)", self.says, tools.display());
        let tools = tools.display().to_string();
        let args = ["install", "--locked", self.package, "--version", self.version];
        let place = ["--root", &tools];
        let command = process::command("cargo", &[&args[..], self.features, &place].concat());
        process::stream(command, |line| println!("{line}"))?;
        Ok(own)
    }
}
