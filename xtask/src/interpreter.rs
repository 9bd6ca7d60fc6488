//! The installed Python interpreters, and the kind of extension module that each needs.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use walkdir::WalkDir;
use xshell::{Cmd, cmd};

use crate::process;

/// A module with this suffix works with the CPython it was built for, and with later ones that are
/// not free-threaded.
pub(crate) const ABI3: &str = ".abi3.so";

/// The versions with which the package is tested. A `t` marks the free-threaded build of a version.
const VERSIONS: [&str; 8] = ["3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t", "3.15"];

const ASK: &str = "
import sys, sysconfig, venv
lock = 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''
print('%d.%d%s' % (*sys.version_info[:2], lock), sys.implementation.name, sys.version.split()[0])
";

#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) program: String,
    /// The version without its last number: `3.13`, or `3.13t`.
    pub(crate) version: String,
    release: String,
}

impl Interpreter {
    pub(crate) fn chosen() -> Result<Interpreter> {
        Interpreter::ask(&env::var("NOWAIT_PYTHON").unwrap_or_else(|_| String::from("python3")))
    }

    /// Returns the installed interpreters, one of each version, by preference from the paths in
    /// `NOWAIT_PYTHONS` (a list like PATH), then from PATH, then from pyenv.
    pub(crate) fn all() -> Vec<Interpreter> {
        let given = env::var_os("NOWAIT_PYTHONS").unwrap_or_default();
        let given = env::split_paths(&given).map(|path| path.display().to_string());
        let named = VERSIONS.iter().map(|version| format!("python{version}"));
        let named = [String::from("python3")].into_iter().chain(named);
        let found = given.filter(|path| !path.is_empty()).chain(named).chain(of_pyenv());
        one_of_each(found.filter_map(|program| Interpreter::ask(&program).ok()))
    }

    fn ask(program: &str) -> Result<Interpreter> {
        let sh = process::shell()?;
        let said = process::output(cmd!(sh, "{program} -c {ASK}"))?;
        let [version, name, release] = said.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("{program}: {said}");
        };
        if name != "cpython" || !VERSIONS.contains(&version) {
            bail!("{program}: {name} {release}: the package is not for it");
        }
        let [program, version, release] = [program, version, release].map(str::to_owned);
        Ok(Interpreter { program, version, release })
    }

    pub(crate) fn is_free_threaded(&self) -> bool {
        self.version.ends_with('t')
    }

    /// Returns `false` if the interpreter needs an extension module of its own.
    fn has_stable_interface(&self) -> bool {
        !self.is_free_threaded() && self.version != "3.10"
    }

    /// PyO3 supports free threading only from 3.14 on.
    pub(crate) fn has_wheel(&self) -> bool {
        self.version != "3.13t"
    }

    pub(crate) fn ending(&self) -> &'static str {
        if self.has_stable_interface() { ABI3 } else { ".so" }
    }

    pub(crate) fn fit<'a>(&self, mut build: Cmd<'a>) -> Cmd<'a> {
        if !self.has_stable_interface() {
            build = build.arg("--no-default-features").env("PYO3_PYTHON", &self.program);
        }
        if !self.has_wheel() {
            build = build.env("UNSAFE_PYO3_SKIP_VERSION_CHECK", "1");
        }
        build
    }
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_free_threaded() { ", free-threaded" } else { "" };
        write!(f, "CPython {}{kind} ({})", self.release, self.program)
    }
}

/// pyenv's programs in PATH run only the versions that the user has selected.
fn of_pyenv() -> Vec<String> {
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from).or(home).unwrap_or_default();
    let versions = WalkDir::new(root.join("versions")).min_depth(1).max_depth(1);
    let versions = versions.sort_by_file_name().into_iter().flatten();
    versions.map(|version| version.path().join("bin/python3").display().to_string()).collect()
}

fn one_of_each(found: impl Iterator<Item = Interpreter>) -> Vec<Interpreter> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<_> = found.filter(|it| seen.insert(it.version.clone())).collect();
    kept.sort_by_key(|it| VERSIONS.iter().position(|version| *version == it.version));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreter(program: &str, version: &str) -> Interpreter {
        let [program, version] = [program, version].map(str::to_owned);
        Interpreter { program, release: version.clone(), version }
    }

    #[test]
    fn the_first_of_each_version_is_taken_in_order_of_versions() {
        let found = [("a", "3.13t"), ("b", "3.10"), ("c", "3.13"), ("d", "3.10")];
        let found = found.map(|(program, version)| interpreter(program, version));
        let kept = one_of_each(found.into_iter());
        let programs: Vec<&str> = kept.iter().map(|it| it.program.as_str()).collect();
        assert_eq!(programs, ["b", "c", "a"]);
    }

    #[test]
    fn those_without_the_stable_interface_are_built_for_by_name() {
        let sh = process::shell().unwrap();
        for (version, named) in [("3.10", true), ("3.11", false), ("3.14", false), ("3.14t", true)]
        {
            let build = interpreter("python", version).fit(sh.cmd("cargo"));
            assert_eq!(build.to_string().ends_with(" --no-default-features"), named, "{version}");
        }
    }

    #[test]
    fn what_is_no_interpreter_is_told_of() {
        assert!(Interpreter::ask("true").is_err());
        assert!(Interpreter::ask("/nonexistent/python").is_err());
    }
}
