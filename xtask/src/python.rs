//! The Python package: built, put together in a folder, and tested there; its wheels.
//!
//! ```text
//!  target/python/package    python/nowait and the extension module, as a wheel would install them
//!  target/python/NAME       a virtual environment with what python/requirements-NAME.txt lists
//!  target/python/sources    the sources of packages whose own tests run here
//! ```

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Result};

/// The name that CPython gives to a module for all its versions from the one it was built for.
const MODULE: &str = "_nowait.abi3.so";

/// Puts the package together, whose extension module is built, and returns the command that tests
/// it; `line` gets what the environment's making says.
///
/// # Errors
/// The environment could not be made.
pub(crate) fn tests(line: impl Fn(&str)) -> Result<Command> {
    let built = process::target().join("debug");
    let package = assemble(&built)?;
    let python = environment("test", &line)?;
    let aiofiles = sources(&python, "aiofiles", "25.1.0", &line)?;
    let aiofile = sources(&python, "aiofile", "3.12.3", &line)?;
    let tests = ["-m", "pytest", "--durations=5"];
    let mut command = process::command(&python.display().to_string(), &tests);
    command
        .current_dir(process::root().join("python"))
        .env("PYTHONPATH", package)
        // Not the sources in this folder, which have no extension module.
        .env("PYTHONSAFEPATH", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NOWAIT_AIOFILES_SOURCES", aiofiles)
        .env("NOWAIT_AIOFILE_SOURCES", aiofile)
        .env("NOWAIT_SECCOMP_RUN", built.join("seccomp-run"));
    Ok(command)
}

/// Puts the package together from the module in `built`; returns the folder for `PYTHONPATH`.
fn assemble(built: &Path) -> Result<PathBuf> {
    let folder = process::target().join("python/package");
    let package = folder.join("nowait");
    drop(fs::remove_dir_all(&package));
    let failed = |error: std::io::Error| format!("{}: {error}", package.display());
    copy_sources(&process::root().join("python/nowait"), &package).map_err(failed)?;
    fs::copy(built.join("lib_nowait.so"), package.join(MODULE)).map_err(failed)?;
    Ok(folder)
}

/// Copies the sources of a package, and of those in it.
fn copy_sources(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() && entry.file_name() != "__pycache__" {
            copy_sources(&path, &to)?;
        } else if ["py", "pyi", "typed"].map(Some).contains(&extension) {
            fs::copy(&path, &to)?;
        }
    }
    Ok(())
}

/// Makes a virtual environment with what its list of requirements names, unless it is there;
/// returns its interpreter. `NOWAIT_PYTHON` is the one it is made with.
fn environment(name: &str, line: impl Fn(&str)) -> Result<PathBuf> {
    let list = process::root().join(format!("python/requirements-{name}.txt"));
    let wanted =
        fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let base = env::var("NOWAIT_PYTHON").unwrap_or_else(|_| String::from("python3"));
    let version = process::output(process::command(&base, &["-VV"]))?;
    let folder = process::target().join("python").join(name);
    let (stamp, python) = (folder.join("made-of"), folder.join("bin/python"));
    let made_of = format!("{base} {version}{wanted}");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == made_of) {
        return Ok(python);
    }
    drop(fs::remove_dir_all(&folder));
    let (place, list) = (folder.display().to_string(), list.display().to_string());
    process::stream(process::command(&base, &["-m", "venv", &place]), &line)?;
    let install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", &list];
    process::stream(process::command(&python.display().to_string(), &install), line)?;
    fs::write(&stamp, made_of).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

/// Fetches the sources of a package of Python, unless they are there; returns their folder.
fn sources(python: &Path, name: &str, version: &str, line: impl Fn(&str)) -> Result<PathBuf> {
    let folders = process::target().join("python/sources");
    let folder = folders.join(format!("{name}-{version}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let (to, package) = (folders.display().to_string(), format!("{name}=={version}"));
    let pip = ["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"];
    let fetch = [&pip[..], &["--no-binary", name, "--dest", &to, &package]].concat();
    process::stream(process::command(&python.display().to_string(), &fetch), &line)?;
    let archive = format!("{to}/{name}-{version}.tar.gz");
    process::stream(process::command("tar", &["-xzf", &archive, "-C", &to]), line)?;
    Ok(folder)
}

/// Builds the wheels into `dist/wheels`, and uses each where its interpreter is here.
///
/// One serves CPython 3.11 and later. zig links it against an old C library, which the tag of the
/// wheel names.
/// # Errors
/// A build failed, or a wheel does not work.
pub(crate) fn wheels() -> Result {
    let print = |line: &str| println!("{line}");
    let tools = environment("wheel", print)?;
    let wheels = process::root().join("dist/wheels");
    drop(fs::remove_dir_all(&wheels));
    let out = wheels.display().to_string();
    let build = ["-m", "maturin", "build", "--release", "--zig", "--compatibility"];
    let to = [TAG, "--interpreter", "python3", "--out", &out];
    let mut command =
        process::command(&tools.display().to_string(), &[&build[..], &to[..]].concat());
    command.current_dir(process::root().join("python"));
    // maturin finds zig as a module of the environment's interpreter.
    let bin = tools.parent().map(Path::to_path_buf);
    let path = env::var_os("PATH").unwrap_or_default();
    let paths = bin.into_iter().chain(env::split_paths(&path));
    command.env("PATH", env::join_paths(paths).map_err(|error| error.to_string())?);
    process::stream(command, print)?;
    for wheel in fs::read_dir(&wheels).map_err(|error| format!("{out}: {error}"))?.flatten() {
        use_wheel(&wheel.path())?;
    }
    Ok(())
}

/// The oldest C library that Rust's own supports.
const TAG: &str = "manylinux2014";

/// What a wheel must be able to do.
const USE: &str = "
import asyncio, nowait, sys
async def main():
    async with nowait.open(sys.executable) as file:
        assert (await file.read_at(4, 0)) == b'\\x7fELF'
    print('read by', nowait.backend().name)
asyncio.run(main())
";

/// Installs a wheel into a fresh environment, and reads a file there.
fn use_wheel(wheel: &Path) -> Result {
    let print = |line: &str| println!("{line}");
    let folder = process::target().join("python/wheel-used");
    drop(fs::remove_dir_all(&folder));
    let (place, wheel) = (folder.display().to_string(), wheel.display().to_string());
    println!("{wheel}");
    process::stream(process::command("python3", &["-m", "venv", &place]), print)?;
    let python = folder.join("bin/python").display().to_string();
    let install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", &wheel];
    process::stream(process::command(&python, &install), print)?;
    process::stream(process::command(&python, &["-c", USE]), print)
}
