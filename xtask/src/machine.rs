//! What dist/ is built for: this machine, another architecture, another C library.
//!
//! ```text
//!   cargo x dist                this machine: dist/
//!   cargo x dist arm64          cross compiled: dist/arm64
//!   cargo x dist musl           this architecture with musl: dist/musl, the two libraries
//! ```

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::places;
use crate::process::{self, Result};

/// One kind of machine, and the tools that make programs for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The folder below dist/; empty for this machine.
    name: &'static str,
    /// As rustc calls it; empty for this machine.
    triple: &'static str,
    /// What the names of binutils begin with.
    tools: &'static str,
    /// The C compiler, which links too.
    compiler: &'static str,
}

/// This machine.
pub(crate) const OWN: Machine = Machine { name: "", triple: "", tools: "", compiler: "cc" };

const OTHERS: &[Machine] = &[
    Machine {
        name: "arm64",
        triple: "aarch64-unknown-linux-gnu",
        tools: "aarch64-linux-gnu-",
        compiler: "aarch64-linux-gnu-gcc",
    },
    Machine { name: "musl", triple: "x86_64-unknown-linux-musl", tools: "", compiler: "musl-gcc" },
];

impl Machine {
    /// Finds one by the name of its folder.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) fn named(name: &str) -> Result<Machine> {
        let found = OTHERS.iter().find(|machine| machine.name == name);
        found.copied().ok_or_else(|| format!("dist: {name}: nothing is built for that here"))
    }

    /// Returns what rustc calls it; nothing for this machine.
    pub(crate) fn triple(self) -> &'static str {
        self.triple
    }

    /// Whether programs for it run here as they are.
    pub(crate) fn is_own(self) -> bool {
        self == OWN
    }

    /// Whether its C library is musl.
    pub(crate) fn is_musl(self) -> bool {
        self.name == "musl"
    }

    /// Returns where its files go.
    pub(crate) fn dist(self) -> PathBuf {
        process::root().join("dist").join(self.name)
    }

    /// Returns where cargo puts a file that it builds in release mode.
    pub(crate) fn built(self, file: &str) -> PathBuf {
        process::target().join(self.triple).join("release").join(file)
    }

    /// Prepares cargo to build what goes into dist/ for it.
    ///
    /// # Errors
    /// As for [`places::of_cargo`].
    pub(crate) fn cargo(self, args: &[&str]) -> Result<Command> {
        let (subcommand, rest) = args.split_first().expect("a subcommand of cargo");
        let mut words = vec![*subcommand];
        if !self.triple.is_empty() {
            words.extend(["--target", self.triple]);
        }
        words.extend(rest);
        let mut command = process::command("cargo", &words);
        if !self.triple.is_empty() {
            let triple = self.triple.to_uppercase().replace('-', "_");
            command.env(format!("CARGO_TARGET_{triple}_LINKER"), self.compiler);
        }
        // Programs that load our libraries have a musl of their own.
        let flags: &[&str] = if self.is_musl() { &["-Ctarget-feature=-crt-static"] } else { &[] };
        places::of_cargo(&mut command, flags)?;
        Ok(command)
    }

    /// Prepares its C compiler; for this machine `CC` may name another one.
    pub(crate) fn compiler(self, args: &[&str]) -> Command {
        let own = env::var("CC").ok().filter(|_| self.is_own());
        let mut command = process::command(own.as_deref().unwrap_or(self.compiler), args);
        command.arg(places::of_c_compiler());
        command
    }

    /// Returns what a native library of Rust's is linked as.
    ///
    /// With musl, what unwinds the stack is the archive that comes with Rust: the compiler's, both
    /// shared and static, needs glibc on this machine.
    ///
    /// # Errors
    /// rustc does not say where it is installed.
    pub(crate) fn native(self, option: &str) -> Result<String> {
        if !self.is_musl() || option != "-lgcc_s" {
            return Ok(option.to_owned());
        }
        let root = process::output(process::command("rustc", &["--print", "sysroot"]))?;
        let (root, triple) = (root.trim(), self.triple);
        Ok(format!("{root}/lib/rustlib/{triple}/lib/self-contained/libunwind.a"))
    }

    /// Prepares a tool of binutils for its files.
    pub(crate) fn tool(self, name: &str, args: &[&str]) -> Command {
        process::command(&format!("{}{name}", self.tools), args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_has_folders_and_a_linker_of_its_own() {
        let arm = Machine::named("arm64").unwrap();
        assert!(arm.dist().ends_with("dist/arm64"));
        assert!(arm.built("nowait").ends_with("aarch64-unknown-linux-gnu/release/nowait"));
        let cargo = arm.cargo(&["build", "--release"]).unwrap();
        let words: Vec<_> = cargo.get_args().collect();
        assert_eq!(words, ["build", "--target", "aarch64-unknown-linux-gnu", "--release"]);
        let linker = std::ffi::OsStr::new("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER");
        assert!(cargo.get_envs().any(|(name, _)| name == linker));
        assert!(Machine::named("vax").is_err());
    }

    #[test]
    fn this_machine_needs_no_options() {
        assert!(OWN.dist().ends_with("dist"));
        assert!(OWN.built("nowait").ends_with("release/nowait"));
        assert_eq!(OWN.cargo(&["build"]).unwrap().get_args().count(), 1);
    }
}
