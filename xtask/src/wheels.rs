//! The wheels of the Python package, in `dist/wheels`: built with zig, which has the C libraries of
//! all of them, looked at by auditwheel, and used by each interpreter that is here.
//!
//! | wheel | for | because |
//! |---|---|---|
//! | `cp311-abi3` | CPython 3.11 and later | its stable interface |
//! | `cp310-cp310` | CPython 3.10 | that interface has no buffers there |
//! | `cp314-cp314t` | free-threaded CPython 3.14 | it has no stable interface before 3.15 |

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Result};
use crate::{interpreter::Interpreter, places, python};

/// A processor and a C library.
struct Target {
    triple: &'static str,
    /// The oldest C library that Rust's own supports there, as the name of a wheel has it.
    platform: &'static str,
}

const TARGETS: &[Target] = &[
    Target { triple: "x86_64-unknown-linux-gnu", platform: "manylinux_2_17_x86_64" },
    Target { triple: "x86_64-unknown-linux-musl", platform: "musllinux_1_2_x86_64" },
    Target { triple: "aarch64-unknown-linux-gnu", platform: "manylinux_2_17_aarch64" },
    Target { triple: "aarch64-unknown-linux-musl", platform: "musllinux_1_2_aarch64" },
];

/// Arguments of maturin: what is built by one call of it.
const BUILDS: &[&[&str]] = &[
    &["--interpreter", "python3.11"],
    &["--no-default-features", "--interpreter", "python3.10", "python3.14t"],
];

/// Builds the wheels for the named targets, or for all.
///
/// # Errors
/// There is no such target, a build failed, or a wheel is not what its name says.
pub(crate) fn run(names: &[&str]) -> Result {
    let chosen = choose(names)?;
    let tools = python::environment("wheel", &Interpreter::chosen()?, print)?;
    let wheels = process::root().join("dist/wheels");
    drop(fs::remove_dir_all(&wheels));
    for target in &chosen {
        for build in BUILDS {
            process::stream(maturin(&tools, target, build, &wheels)?, print)?;
        }
    }
    let built = files(&wheels)?;
    for wheel in &built {
        let target = chosen.iter().find(|target| name(wheel).contains(target.platform));
        let target = target.ok_or_else(|| format!("{}: for no platform", wheel.display()))?;
        if is_musl(target) {
            name_musl(&tools, wheel, target)?;
        }
        audit(&tools, wheel, target.platform)?;
    }
    let used = use_all(&wheels, names.is_empty())?;
    for wheel in built {
        let word = if used.contains(&wheel) { "used" } else { "not used: no interpreter here" };
        println!("{:<76} {word}", name(&wheel));
    }
    Ok(())
}

fn choose(names: &[&str]) -> Result<Vec<&'static Target>> {
    let find = |name: &&str| {
        let found = TARGETS.iter().find(|target| target.triple == *name);
        found.ok_or_else(|| format!("wheel: {name}: nothing is built for that"))
    };
    if names.is_empty() { Ok(TARGETS.iter().collect()) } else { names.iter().map(find).collect() }
}

/// Prepares one call of maturin.
fn maturin(tools: &Path, target: &Target, build: &[&str], to: &Path) -> Result<Command> {
    let (out, folder) = (to.display().to_string(), process::target().join("wheels"));
    let (kind, _) = target.platform.rsplit_once(processor(target)).expect("its processor");
    let kind = kind.trim_end_matches('_');
    let args = ["-m", "maturin", "build", "--release", "--strip", "--zig", "--out", &out];
    let what = ["--target", target.triple, "--compatibility", kind];
    let args = [&args[..], &what, build].concat();
    let mut command = process::command(&tools.display().to_string(), &args);
    command.current_dir(process::root().join("python")).env("CARGO_TARGET_DIR", folder);
    places::of_cargo(&mut command, flags(target))?;
    // maturin finds zig as a module of the environment's interpreter.
    let bin = tools.parent().map(Path::to_path_buf);
    let path = env::var_os("PATH").unwrap_or_default();
    let paths = bin.into_iter().chain(env::split_paths(&path));
    command.env("PATH", env::join_paths(paths).map_err(|error| error.to_string())?);
    Ok(command)
}

/// An interpreter that loads the module has a musl of its own.
fn flags(target: &Target) -> &'static [&'static str] {
    if is_musl(target) { &["-Ctarget-feature=-crt-static"] } else { &[] }
}

fn is_musl(target: &Target) -> bool {
    target.triple.ends_with("musl")
}

/// Has the module of a wheel name its C library as Alpine does, and auditwheel asks for. musl's
/// loader takes that name and zig's for itself.
fn name_musl(tools: &Path, wheel: &Path, target: &Target) -> Result {
    let folder = process::target().join("wheels/unpacked");
    drop(fs::remove_dir_all(&folder));
    let run = |tool: &Path, args: &[&str]| {
        process::output(process::command(&tool.display().to_string(), args)).map(drop)
    };
    let (from, unpacked) = (wheel.display().to_string(), folder.display().to_string());
    run(tools, &["-m", "wheel", "unpack", &from, "--dest", &unpacked])?;
    let [package] = &files(&folder)?[..] else { return Err(format!("{from}: no package")) };
    let named = format!("libc.musl-{}.so.1", processor(target));
    let is_module = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "so");
    for module in files(&package.join("nowait"))?.into_iter().filter(is_module) {
        let module = module.display().to_string();
        let patchelf = tools.with_file_name("patchelf");
        run(&patchelf, &["--replace-needed", "libc.so", &named, &module])?;
    }
    let to = wheel.parent().unwrap_or(wheel).display().to_string();
    run(tools, &["-m", "wheel", "pack", &package.display().to_string(), "--dest-dir", &to])
}

fn processor(target: &Target) -> &'static str {
    target.triple.split('-').next().unwrap_or_default()
}

/// Looks whether a wheel needs no more than its platform has.
fn audit(tools: &Path, wheel: &Path, platform: &str) -> Result {
    let args = ["-m", "auditwheel", "show", &wheel.display().to_string()];
    let said = process::output(process::command(&tools.display().to_string(), &args))?;
    // Its lines are broken anywhere.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match said.contains(&format!("platform tag: \"{platform}\"")) {
        true => Ok(()),
        false => Err(format!("auditwheel: {said}")),
    }
}

/// What a wheel must be able to do.
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

/// Has each interpreter take the wheel that it would take from an index, and read files; returns
/// the wheels that were used. With `all` of them there is one for each.
fn use_all(wheels: &Path, all: bool) -> Result<BTreeSet<PathBuf>> {
    let mut used = BTreeSet::new();
    for interpreter in Interpreter::all() {
        if !interpreter.has_wheel() {
            println!("{interpreter}: no wheel is for it");
            continue;
        }
        let folder = process::target().join("python/wheel-used");
        drop(fs::remove_dir_all(&folder));
        let (place, from) = (folder.display().to_string(), wheels.display().to_string());
        let venv = ["-m", "venv", &place];
        process::stream(process::command(&interpreter.program, &venv), print)?;
        let python = folder.join("bin/python").display().to_string();
        let install = ["-m", "pip", "install", "--no-deps", "--no-index", "--find-links", &from];
        let said =
            process::output(process::command(&python, &[&install[..], &["nowait"]].concat()));
        let said = match said {
            Err(_) if !all => continue,
            said => said?,
        };
        let lines = folder.join("lines");
        fs::write(&lines, "one\ntwo\n").map_err(|error| format!("{}: {error}", lines.display()))?;
        println!("{interpreter}:");
        let lines = lines.display().to_string();
        process::stream(process::command(&python, &["-c", USE, &lines]), print)?;
        used.extend(files(wheels)?.into_iter().filter(|wheel| said.contains(&name(wheel))));
    }
    Ok(used)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

fn name(wheel: &Path) -> String {
    wheel.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn print(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_built_is_refused() {
        assert_eq!(choose(&[]).unwrap().len(), 4);
        assert_eq!(choose(&["aarch64-unknown-linux-musl"]).unwrap().len(), 1);
        assert!(choose(&["vax"]).is_err_and(|error| error.contains("vax")));
    }
}
