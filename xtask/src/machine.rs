//! The targets of dist/: this machine, another architecture, another C library.
//!
//! ```text
//!   cargo x dist                this machine: dist/
//!   cargo x dist arm64          cross compiled: dist/arm64
//!   cargo x dist musl           this architecture with musl: dist/musl, the two libraries
//! ```

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Cmd, Shell, cmd};

use crate::places;
use crate::process;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The folder below dist/; empty for this machine.
    name: &'static str,
    pub(crate) triple: &'static str,
    /// The prefix of the names of the machine's binutils.
    tools: &'static str,
    /// The C compiler, which links too.
    compiler: &'static str,
}

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

/// `nodelete`: the engine has threads, so a `dlclose` must not unmap their code. `gc-sections`
/// leaves out unused Rust code. Compressed debug information stays in the libraries, for
/// backtraces.
const LINK_FLAGS: &str = "-shared -fPIC -O2 -g1 -std=gnu11 -Wall -Wextra -Werror \
    -ffunction-sections -Wl,--gc-sections -Wl,-z,now,-z,relro,-z,nodelete,-z,noexecstack \
    -Wl,--no-undefined -Wl,--as-needed -Wl,--build-id -Wl,--compress-debug-sections=zlib";

impl Machine {
    pub(crate) fn named(name: &str) -> Result<Machine> {
        let found = OTHERS.iter().find(|machine| machine.name == name);
        found.copied().with_context(|| format!("dist: {name}: nothing is built for that here"))
    }

    pub(crate) fn is_own(self) -> bool {
        self == OWN
    }

    pub(crate) fn is_musl(self) -> bool {
        self.name == "musl"
    }

    pub(crate) fn dist(self) -> PathBuf {
        process::root().join("dist").join(self.name)
    }

    pub(crate) fn built(self, file: &str) -> PathBuf {
        process::target().join(self.triple).join("release").join(file)
    }

    pub(crate) fn cargo<'a>(self, sh: &'a Shell, args: &[&str]) -> Result<Cmd<'a>> {
        let mut cargo = cmd!(sh, "cargo {args...}");
        if !self.triple.is_empty() {
            let triple = self.triple.to_uppercase().replace('-', "_");
            cargo = cargo.args(["--target", self.triple]);
            cargo = cargo.env(format!("CARGO_TARGET_{triple}_LINKER"), self.compiler);
        }
        // Programs that load nowait's libraries bring their own musl.
        let flags: &[&str] = if self.is_musl() { &["-Ctarget-feature=-crt-static"] } else { &[] };
        places::of_cargo(sh, cargo, flags)
    }

    /// For this machine, `CC` may name another compiler.
    pub(crate) fn linker<'a>(self, sh: &'a Shell, soname: &str, map: &Path) -> Cmd<'a> {
        let own = env::var("CC").ok().filter(|_| self.is_own());
        let link = sh.cmd(own.as_deref().unwrap_or(self.compiler));
        let link = link.args(LINK_FLAGS.split_whitespace()).arg(places::of_c_compiler());
        link.arg(format!("-Wl,-soname,{soname},--version-script={}", map.display()))
    }

    /// For musl, replaces the unwinder libgcc_s by the archive of an unwinder that comes with Rust:
    /// the C compiler's unwinders, shared and static, need glibc on this machine.
    pub(crate) fn native(self, option: &str) -> Result<String> {
        if !self.is_musl() || option != "-lgcc_s" {
            return Ok(option.to_owned());
        }
        let sh = process::shell()?;
        let root = process::output(cmd!(sh, "rustc --print sysroot"))?;
        let (root, triple) = (root.trim(), self.triple);
        Ok(format!("{root}/lib/rustlib/{triple}/lib/self-contained/libunwind.a"))
    }

    pub(crate) fn tool<'a>(self, sh: &'a Shell, name: &str) -> Cmd<'a> {
        sh.cmd(format!("{}{name}", self.tools))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_has_folders_and_a_linker_of_its_own() {
        let (arm, sh) = (Machine::named("arm64").unwrap(), process::shell().unwrap());
        assert!(arm.dist().ends_with("dist/arm64"));
        assert!(arm.built("nowait").ends_with("aarch64-unknown-linux-gnu/release/nowait"));
        let cargo = arm.cargo(&sh, &["build", "--release"]).unwrap();
        let words = "cargo build --release --target aarch64-unknown-linux-gnu";
        assert_eq!(cargo.to_string(), words);
        let linker = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER";
        let cargo = std::process::Command::from(cargo);
        assert!(cargo.get_envs().any(|(name, _)| name == linker));
        assert!(Machine::named("vax").is_err());
    }

    #[test]
    fn this_machine_needs_no_options() {
        assert!(OWN.dist().ends_with("dist"));
        assert!(OWN.built("nowait").ends_with("release/nowait"));
        let sh = process::shell().unwrap();
        assert_eq!(OWN.cargo(&sh, &["build"]).unwrap().to_string(), "cargo build");
    }
}
