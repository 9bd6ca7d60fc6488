//! The Python package: built, put together in a folder, and tested there.
//!
//! ```text
//!  target/python/package    python/nowait and the extension module, as a wheel would install them
//!  target/python/NAME-3.11  a virtual environment with what python/requirements-NAME.txt lists
//!  target/python/sources    the sources of packages whose own tests run here
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interpreter::{ABI3, Interpreter};
use crate::machine;
use crate::process::{self, Result};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Puts the package together, whose extension module is built for this interpreter, and returns the
/// command that tests it; `line` gets what the environment's making says.
///
/// # Errors
/// The environment could not be made.
pub(crate) fn tests(interpreter: &Interpreter, line: impl Fn(&str)) -> Result<Command> {
    let built = process::target().join("debug");
    let package = process::target().join("python/package");
    assemble(&built, interpreter.module(), &package)?;
    let python = environment("test", interpreter, &line)?;
    let aiofiles = sources(&python, "aiofiles", "25.1.0", &line)?;
    let aiofile = sources(&python, "aiofile", "3.12.3", &line)?;
    let sources = process::root().join("python");
    let (project, tests) = (sources.join("pyproject.toml"), sources.join("tests"));
    let [project, tests] = [project, tests].map(|path| path.display().to_string());
    let args = ["-m", "pytest", "--durations=5", "-rs", "-c", &project, &tests];
    let mut command = process::command(&python.display().to_string(), &args);
    command
        // CPython 3.10 looks for modules where it runs: the sources have no extension module.
        .current_dir(&package)
        .env("PYTHONPATH", &package)
        .env("PYTHONSAFEPATH", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NOWAIT_AIOFILES_SOURCES", aiofiles)
        .env("NOWAIT_AIOFILE_SOURCES", aiofile)
        .env("NOWAIT_SECCOMP_RUN", built.join("seccomp-run"))
        .env("NOWAIT_DIST", process::root().join("dist"));
    Ok(command)
}

/// Puts the package together from the module in `built`, for `PYTHONPATH` to name `folder`.
fn assemble(built: &Path, module: &str, folder: &Path) -> Result {
    let package = folder.join("nowait");
    drop(fs::remove_dir_all(&package));
    let failed = |error: std::io::Error| format!("{}: {error}", package.display());
    copy_sources(&process::root().join("python/nowait"), &package).map_err(failed)?;
    fs::copy(built.join("lib_nowait.so"), package.join(module)).map(drop).map_err(failed)
}

/// Puts the package into `folder` as a distribution installs it: the module is built for release,
/// and what says which package that is lies beside.
///
/// # Errors
/// The module cannot be built, or a file not be written.
pub(crate) fn install(folder: &Path) -> Result {
    let cargo = machine::OWN.cargo(&["build", "--release", "-p", "nowait-python"])?;
    process::stream(cargo, |line| println!("{line}"))?;
    let built = machine::OWN.built("lib_nowait.so");
    assemble(built.parent().unwrap_or(&built), ABI3, folder)?;
    let project = process::root().join("python/pyproject.toml");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let project = fs::read_to_string(project).map_err(failed)?;
    let about = folder.join(format!("nowait-{VERSION}.dist-info"));
    fs::create_dir_all(&about).map_err(failed)?;
    fs::write(about.join("METADATA"), metadata(&project)).map_err(failed)?;
    fs::write(about.join("entry_points.txt"), entry_points(&project)).map_err(failed)
}

/// Returns what of a project's description every installed package has.
fn metadata(project: &str) -> String {
    let summary = project.lines().find_map(|line| line.strip_prefix("description = "));
    let summary = summary.unwrap_or_default().trim_matches('"');
    format!("Metadata-Version: 2.1\nName: nowait\nVersion: {VERSION}\nSummary: {summary}\n")
}

/// Returns by which names other packages find what is in this one.
fn entry_points(project: &str) -> String {
    const SECTION: &str = "[project.entry-points.";
    let lines = project.lines().skip_while(|line| !line.starts_with(SECTION));
    let lines = lines.take_while(|line| line.starts_with(SECTION) || line.contains(" = "));
    let lines = lines.map(|line| line.replace(SECTION, "[").replace('"', "") + "\n");
    lines.collect()
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
/// returns its interpreter.
pub(crate) fn environment(
    name: &str,
    interpreter: &Interpreter,
    line: impl Fn(&str),
) -> Result<PathBuf> {
    let list = list(name, interpreter);
    let wanted =
        fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let folder = process::target().join(format!("python/{name}-{}", interpreter.version));
    let (stamp, python) = (folder.join("made-of"), folder.join("bin/python"));
    let made_of = format!("{interpreter}\n{wanted}");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == made_of) {
        return Ok(python);
    }
    drop(fs::remove_dir_all(&folder));
    let (place, list) = (folder.display().to_string(), list.display().to_string());
    process::stream(process::command(&interpreter.program, &["-m", "venv", &place]), &line)?;
    let install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", &list];
    process::stream(process::command(&python.display().to_string(), &install), line)?;
    fs::write(&stamp, made_of).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

/// Returns the list of what an environment has; some interpreters have one of their own, because
/// other versions are for them, or none.
fn list(name: &str, interpreter: &Interpreter) -> PathBuf {
    let folder = process::root().join("python");
    let own = if interpreter.is_free_threaded() { "free-threaded" } else { &interpreter.version };
    let own = folder.join(format!("requirements-{name}-{own}.txt"));
    if own.exists() { own } else { folder.join(format!("requirements-{name}.txt")) }
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
    // An interpreter that the package is no longer for runs its tests with an older one installed.
    let any = ["--ignore-requires-python", "--no-binary", name, "--dest", &to, &package];
    let fetch = [&pip[..], &any].concat();
    process::stream(process::command(&python.display().to_string(), &fetch), &line)?;
    let archive = format!("{to}/{name}-{version}.tar.gz");
    process::stream(process::command("tar", &["-xzf", &archive, "-C", &to]), line)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_says_what_the_project_does() {
        let project = "[project]\nname = \"nowait\"\ndescription = \"Files\"\n\n\
            [project.entry-points.\"fsspec.specs\"]\nnowait = \"nowait.fsspec.F\"\n\n\
            [tool.x]\ny = 1\n";
        assert_eq!(entry_points(project), "[fsspec.specs]\nnowait = nowait.fsspec.F\n");
        assert!(metadata(project).ends_with("\nSummary: Files\n"));
    }
}
