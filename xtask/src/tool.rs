//! Programs of crates.io that a command needs: built once, into `target/tools`.

use anyhow::Result;
use xshell::cmd;

use crate::process;

/// A program of one version, which is the version that it was tried with.
pub(crate) struct Tool {
    /// Also the name of the program.
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// How it is asked for its version.
    pub(crate) ask: &'static [&'static str],
    /// How `cargo install` chooses what is built of it.
    pub(crate) features: &'static [&'static str],
}

impl Tool {
    /// Returns the program's name or path; builds it where neither PATH nor an earlier run has it.
    pub(crate) fn program(&self) -> Result<String> {
        let (sh, tools) = (process::shell()?, process::target().join("tools"));
        let Tool { package, version, ask, features } = *self;
        let own = tools.join("bin").join(package).display().to_string();
        for program in [package, &own] {
            let answer = process::output(sh.cmd(program).args(ask));
            if answer.is_ok_and(|answer| answer.trim().ends_with(version)) {
                return Ok(program.to_owned());
            }
        }
        println!("installing {package} {version} in {} (some minutes, once)", tools.display());
        let install = cmd!(sh, "cargo install --locked {package} --version {version}");
        process::run(install.args(features).arg("--root").arg(tools))?;
        Ok(own)
    }
}
