//! Builds the Python package, assembles it in a folder, and tests it there.
//!
//! ```text
//!  target/python/package    python/nowait and the extension module, as a wheel would install them
//!  target/python/NAME-3.11  a virtual environment with the packages of requirements-NAME.txt
//!  target/python/sources    the sources of packages whose own tests run here
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use walkdir::WalkDir;
use xshell::{Shell, cmd};

use crate::FEATURES;
use crate::interpreter::{ABI3, Interpreter};
use crate::machine::OWN;
use crate::outcome::Outcome;
use crate::process::{self, root, target};

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn run(all: bool) -> Result<()> {
    let interpreters = if all { Interpreter::all() } else { vec![Interpreter::chosen()?] };
    ensure!(!interpreters.is_empty(), "no CPython of those that the package is for");
    let mut rows = Vec::new();
    for interpreter in &interpreters {
        println!("\n{interpreter}");
        let mut outcome = Outcome::default();
        let result = test(interpreter, |line| {
            outcome.count(line);
            println!("{line}");
        });
        let word = result.map_or_else(|error| format!("{error:#}"), |()| outcome.to_string());
        rows.push((format!("{interpreter}: {word}"), outcome));
    }
    rows.iter().for_each(|(row, _)| println!("{row}"));
    let is_right = |(_, outcome): &(_, Outcome)| outcome.failed == 0 && outcome.passed > 0;
    ensure!(rows.iter().all(is_right), "python: see the lines above");
    Ok(())
}

fn test(interpreter: &Interpreter, line: impl FnMut(&str)) -> Result<()> {
    let sh = &process::shell()?;
    let modules = cmd!(sh, "cargo build --features {FEATURES} -p nowait-python -p nowait-vllm");
    process::run(interpreter.fit(modules))?;
    let (built, package) = (target().join("debug"), target().join("python/package"));
    for module in [PACKAGE, EXAMPLE] {
        assemble(sh, module, &built, interpreter.ending(), &package)?;
    }
    let python = environment(sh, "test", interpreter)?;
    let aiofiles = sources(sh, &python, "aiofiles", "25.1.0")?;
    let aiofile = sources(sh, &python, "aiofile", "3.12.3")?;
    // CPython 3.10 looks for modules in its working folder first, and the sources have no extension
    // module.
    sh.change_dir(&package);
    let [project, tests] = ["pyproject.toml", "tests"].map(|it| root().join("python").join(it));
    let test = cmd!(sh, "{python} -m pytest --durations=5 -rfs -c {project} {tests}")
        .env("PYTHONPATH", &package)
        .env("PYTHONSAFEPATH", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NOWAIT_AIOFILES_SOURCES", aiofiles)
        .env("NOWAIT_AIOFILE_SOURCES", aiofile)
        .env("NOWAIT_SECCOMP_RUN", built.join("seccomp-run"))
        .env("NOWAIT_DIST", root().join("dist"));
    process::stream(test, line)
}

/// The sources of a package below python/, and the name of the package's extension module.
type Module = (&'static str, &'static str);

const PACKAGE: Module = ("nowait", "_nowait");
const EXAMPLE: Module = ("examples/vllm/nowait_vllm", "_blocks");

fn assemble(
    sh: &Shell,
    (sources, module): Module,
    built: &Path,
    ending: &str,
    folder: &Path,
) -> Result<()> {
    let sources = root().join("python").join(sources);
    let package = folder.join(sources.file_name().unwrap_or_default());
    sh.remove_path(&package)?;
    for entry in WalkDir::new(&sources) {
        let entry = entry?;
        let ending = entry.path().extension().and_then(|ending| ending.to_str());
        if ["py", "pyi", "typed"].map(Some).contains(&ending) {
            let to = package.join(entry.path().strip_prefix(&sources)?);
            sh.create_dir(to.parent().unwrap_or(&to))?;
            sh.copy_file(entry.path(), to)?;
        }
    }
    let library = built.join(format!("lib{module}.so"));
    Ok(sh.copy_file(library, package.join(format!("{module}{ending}")))?)
}

/// Installs what a distribution does: a module built for release, and metadata.
pub(crate) fn install(folder: &Path) -> Result<()> {
    let sh = &process::shell()?;
    process::run(OWN.cargo(sh, &["build", "--release", "-p", "nowait-python"])?)?;
    assemble(sh, PACKAGE, &OWN.built(""), ABI3, folder)?;
    let project = sh.read_file("python/pyproject.toml")?;
    let about = folder.join(format!("nowait-{VERSION}.dist-info"));
    sh.write_file(about.join("METADATA"), metadata(&project))?;
    Ok(sh.write_file(about.join("entry_points.txt"), entry_points(&project))?)
}

fn metadata(project: &str) -> String {
    let summary = project.lines().find_map(|line| line.strip_prefix("description = "));
    let summary = summary.unwrap_or_default().trim_matches('"');
    format!("Metadata-Version: 2.1\nName: nowait\nVersion: {VERSION}\nSummary: {summary}\n")
}

/// Other packages find objects of this package by the names of its entry points.
fn entry_points(project: &str) -> String {
    const SECTION: &str = "[project.entry-points.";
    let lines = project.lines().skip_while(|line| !line.starts_with(SECTION));
    let lines = lines.take_while(|line| line.starts_with(SECTION) || line.contains(" = "));
    lines.map(|line| line.replace(SECTION, "[").replace('"', "") + "\n").collect()
}

pub(crate) fn environment(sh: &Shell, name: &str, of: &Interpreter) -> Result<PathBuf> {
    let list = list(name, of);
    let folder = target().join(format!("python/{name}-{}", of.version));
    let (stamp, python) = (folder.join("made-of"), folder.join("bin/python"));
    let made_of = format!("{of}\n{}", sh.read_file(&list)?);
    if sh.read_file(&stamp).is_ok_and(|made| made == made_of) {
        return Ok(python);
    }
    sh.remove_path(&folder)?;
    let program = &of.program;
    process::run(cmd!(sh, "{program} -m venv {folder}"))?;
    process::run(cmd!(sh, "{python} -m pip install -q --disable-pip-version-check -r {list}"))?;
    sh.write_file(&stamp, made_of)?;
    Ok(python)
}

/// Some interpreters need other versions of packages, or cannot have some.
fn list(name: &str, interpreter: &Interpreter) -> PathBuf {
    let folder = root().join("python");
    let own = if interpreter.is_free_threaded() { "free-threaded" } else { &interpreter.version };
    let own = folder.join(format!("requirements-{name}-{own}.txt"));
    if own.exists() { own } else { folder.join(format!("requirements-{name}.txt")) }
}

fn sources(sh: &Shell, python: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let folders = sh.create_dir(target().join("python/sources"))?;
    let folder = folders.join(format!("{name}-{version}"));
    if !folder.is_dir() {
        // Also fetch the sources if this version of the package no longer supports the interpreter:
        // they have the tests, which then run with an older version of the package.
        let pip = cmd!(sh, "{python} -m pip download -q --disable-pip-version-check --no-deps");
        let pip = pip.args(["--ignore-requires-python", "--no-binary", name, "--dest"]);
        process::run(pip.arg(&folders).arg(format!("{name}=={version}")))?;
        process::run(cmd!(sh, "tar -xzf {folder}.tar.gz -C {folders}"))?;
    }
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
