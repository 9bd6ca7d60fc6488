//! Fills dist/: the programs, the two shared objects linked by the C compiler, and the C API.
//!
//! ```text
//!   crates/cli/nowait, serve/serve, bench/bench ──► dist/bin, dist/lib/debug     (debug_file.rs)
//!   crates/api/capi ────────► dist/lib/libnowait.so, libnowait.a …               (c_api.rs)
//!   crates/api/faces (Rust) ──► libnowait_faces.a ─┐
//!   exports.c, libaio.map ─────────────────────────┼─► dist/lib/libaio.so.1
//!   exports.c, preload.c, signals.c, posix.c,      │
//!   preload.map ───────────────────────────────────┴─► dist/lib/libnowait_preload.so
//!   contrib/systemd ─────► dist/lib/systemd/system, sysusers.d, tmpfiles.d
//! ```
//!
//! The C compiler links because rustc cannot: two versions of one symbol need `symver` directives
//! together with a version script. Each file is checked under a temporary name and then renamed:
//! a failed build leaves the last good one, and a running program keeps what it has mapped. The
//! same sources give the same bytes (places.rs), which packaging/test/reproducible.sh checks.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::{Machine, OWN};
use crate::process::{self, Result};
use crate::{c_api, debug_file, examples, places, symbols};

/// Where the C files and the version scripts lie.
const SOURCES: &str = "crates/api";

/// What all shared objects are linked with.
///
/// `nodelete`: the engine has threads, so a `dlclose` must not unmap their code. `gc-sections`
/// keeps the Rust archive small. Debug information stays in, for backtraces, compressed.
pub(crate) const LINK_FLAGS: &[&str] = &[
    "-shared",
    "-fPIC",
    "-O2",
    "-g1",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffunction-sections",
    "-Wl,--gc-sections",
    "-Wl,-z,now,-z,relro,-z,nodelete,-z,noexecstack",
    "-Wl,--no-undefined",
    "-Wl,--as-needed",
    "-Wl,--build-id",
    "-Wl,--compress-debug-sections=zlib",
];

/// One shared object: its soname, which is its file name, and what it is made of.
struct Library {
    soname: &'static str,
    sources: &'static [&'static str],
    /// The first so many of `sources` are what it is made of with musl.
    sources_with_musl: usize,
    version_script: &'static str,
    define: &'static str,
    check_exports: fn(Machine, &str) -> Result,
}

const LIBRARIES: &[Library] = &[
    Library {
        soname: "libaio.so.1",
        sources: &["libaio/exports.c"],
        sources_with_musl: 1,
        version_script: "libaio/libaio.map",
        define: "-DNOWAIT_LIBAIO=1",
        check_exports: symbols::check_libaio,
    },
    Library {
        soname: "libnowait_preload.so",
        sources: &["libaio/exports.c", "libaio/preload.c", "libaio/signals.c", "posix/posix.c"],
        // The others stand before functions of glibc: docs/installing.md.
        sources_with_musl: 2,
        version_script: "libaio/preload.map",
        define: "-DNOWAIT_PRELOAD=1",
        check_exports: symbols::check_preload,
    },
];

/// A program: its package, and its name in dist/bin.
type Program = (&'static str, &'static str);

const PROGRAMS: &[Program] =
    &[("nowait-cli", "nowait"), ("nowait-serve", "nowait-serve"), ("nowait-bench", "nowait-bench")];

/// The programs that `make demo` runs.
const DEMO_PROGRAMS: &[Program] = &[("nowait-cli", "nowait"), ("nowait-bench", "nowait-bench")];

/// The completions: shell, file under dist/share.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "bash-completion/completions/nowait"),
    ("zsh", "zsh/site-functions/_nowait"),
    ("fish", "fish/vendor_completions.d/nowait.fish"),
];

/// What systemd needs to know: file of contrib/systemd, file under dist/lib.
const UNITS: &[(&str, &str)] = &[
    ("nowait-serve@.service", "systemd/system/nowait-serve@.service"),
    ("nowait-serve@.socket", "systemd/system/nowait-serve@.socket"),
    ("nowait.sysusers.conf", "sysusers.d/nowait.conf"),
    ("nowait.tmpfiles.conf", "tmpfiles.d/nowait.conf"),
];

/// Builds in release mode, links, checks and installs everything into dist/, for another machine
/// into a folder below it.
///
/// # Errors
/// A build failed, or a shared object does not export exactly what it must.
pub(crate) fn run(machine: Machine) -> Result {
    places::unpack(machine);
    let dist = machine.dist();
    if machine.is_musl() {
        return link_libraries(machine);
    }
    // The debug information of earlier builds belongs to no program any more.
    remove_folder(&dist.join("lib/debug"))?;
    build_programs(machine, PROGRAMS)?;
    link_libraries(machine)?;
    c_api::install(machine)?;
    // Manual pages and completions are the same on every machine; only here can the programs be
    // asked for them.
    if machine.is_own() {
        share(&dist)?;
    }
    for (from, to) in UNITS {
        install(&process::root().join("contrib/systemd").join(from), &dist.join("lib").join(to))?;
    }
    list(&dist)
}

/// Builds in release mode what `make demo` needs: the two libraries, the tool and the benchmarks.
///
/// # Errors
/// The errors of [`run`].
pub(crate) fn run_for_demo() -> Result {
    println!("dist: building {}", names(DEMO_PROGRAMS));
    build_programs(OWN, DEMO_PROGRAMS)?;
    println!("dist: building libaio.so.1, libnowait_preload.so");
    link_libraries(OWN)
}

/// Makes the two libraries that programs of others are run with.
///
/// # Errors
/// The errors of [`run`].
pub(crate) fn link_libraries(machine: Machine) -> Result {
    let natives = build_archive(machine, "nowait-faces")?;
    for library in LIBRARIES {
        link(machine, library, &natives)?;
    }
    link_alias(&machine.dist().join("lib"), "libaio.so.1t64", "libaio.so.1")
}

/// Builds programs; where nothing but tests runs them, as tests are built: with assertions, and in
/// half the time, since all that they need is built for the tests too.
fn build_programs(machine: Machine, programs: &[Program]) -> Result {
    let is_for_tests = env::var_os("NOWAIT_TOOL_FOR_TESTS").is_some() && machine.is_own();
    let (command, built) = if is_for_tests {
        let what = ["build", "--workspace", "--all-targets", "--features", examples::FEATURES];
        (process::command("cargo", &what), process::target().join("debug"))
    } else {
        let packages = programs.iter().flat_map(|(package, _)| ["-p", package]);
        let what: Vec<&str> = ["build", "--release"].into_iter().chain(packages).collect();
        (machine.cargo(&what)?, machine.built(""))
    };
    process::stream(command, |line| println!("{line}"))?;
    let (bin, debug) = (machine.dist().join("bin"), machine.dist().join("lib/debug"));
    for (_, name) in programs {
        debug_file::install(machine, &built.join(name), &bin.join(name), &debug)?;
    }
    Ok(())
}

/// Returns a program that is not in `dist`, which is empty, or which only `make demo` has filled.
pub(crate) fn missing_program(dist: &Path) -> Option<String> {
    let files = PROGRAMS.iter().map(|(_, name)| format!("bin/{name}"));
    files.into_iter().find(|file| !dist.join(file).exists())
}

fn names(programs: &[Program]) -> String {
    let names: Vec<&str> = programs.iter().map(|(_, name)| *name).collect();
    names.join(", ")
}

/// Builds the static archive of a package; returns the system libraries that it says it needs.
pub(crate) fn build_archive(machine: Machine, package: &str) -> Result<Vec<String>> {
    const NATIVES: &str = "native-static-libs: ";
    let mut args = vec!["rustc", "--release", "-p", package, "--lib"];
    args.extend(["--crate-type", "staticlib", "--", "--print", "native-static-libs"]);
    let mut natives = None;
    process::stream(machine.cargo(&args)?, |line| {
        if let Some((_, libraries)) = line.split_once(NATIVES) {
            natives = Some(libraries.split_whitespace().map(str::to_owned).collect());
        } else if !line.contains("native artifacts") && !line.is_empty() {
            println!("{line}");
        }
    })?;
    natives.ok_or_else(|| String::from("cargo did not say which native-static-libs are needed"))
}

fn link(machine: Machine, library: &Library, natives: &[String]) -> Result {
    let sources = process::root().join(SOURCES);
    let script = sources.join(library.version_script);
    let folder = machine.dist().join("lib");
    create_folder(&folder)?;
    let temporary = temporary(&folder.join(library.soname));
    let mut command = machine.compiler(LINK_FLAGS);
    // The archive is private: only the C files export.
    command
        .args([library.define, "-Wl,--exclude-libs,ALL"])
        .arg(format!("-Wl,-soname,{}", library.soname));
    command.arg(format!("-Wl,--version-script={}", script.display()));
    let parts = if machine.is_musl() { library.sources_with_musl } else { library.sources.len() };
    command.args(library.sources[..parts].iter().map(|name| sources.join(name)));
    command.arg(machine.built("libnowait_faces.a"));
    for name in natives {
        command.arg(machine.native(name)?);
    }
    command.arg("-o").arg(&temporary);
    process::stream(command, |line| println!("{line}"))?;
    check(machine, library, &temporary).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    rename(&temporary, &folder.join(library.soname))
}

fn check(machine: Machine, library: &Library, file: &Path) -> Result {
    let readelf = |option: &[&str]| {
        let mut command = process::command("readelf", option);
        command.arg("-W").arg(file);
        process::output(command)
    };
    (library.check_exports)(machine, &readelf(&["--dyn-syms"])?)?;
    symbols::check_dynamic(&readelf(&["-d"])?, library.soname)
}

/// Adds another name for a library: that of libaio on distributions with a 64-bit `time_t`
/// transition, that of libnowait for the linker.
pub(crate) fn link_alias(folder: &Path, alias: &str, library: &str) -> Result {
    let alias = folder.join(alias);
    let temporary = temporary(&alias);
    drop(fs::remove_file(&temporary));
    std::os::unix::fs::symlink(library, &temporary)
        .map_err(|error| format!("{}: {error}", alias.display()))?;
    rename(&temporary, &alias)
}

/// Asks the tool for the manual pages and completions, which it asks the other programs for; one
/// that has none is left alone.
fn share(dist: &Path) -> Result {
    let pages = dist.join("share/man/man1");
    create_folder(&pages)?;
    let tool = dist.join("bin/nowait");
    let args = ["man", &pages.to_string_lossy()];
    if process::output(process::command(&tool.to_string_lossy(), &args)).is_err() {
        println!("dist: the tool offers no manual pages");
    }
    for (shell, file) in COMPLETIONS {
        write_if_offered(dist, &["completions", shell], &dist.join("share").join(file))?;
    }
    Ok(())
}

fn write_if_offered(dist: &Path, args: &[&str], file: &Path) -> Result {
    let tool = dist.join("bin/nowait");
    let text = process::output(process::command(&tool.to_string_lossy(), args));
    let Some(text) = text.ok().filter(|text| !text.is_empty()) else {
        println!("dist: the tool offers no `nowait {}`", args.join(" "));
        return Ok(());
    };
    create_folder(file.parent().unwrap_or(dist))?;
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

pub(crate) fn install(from: &Path, to: &Path) -> Result {
    create_folder(to.parent().unwrap_or(to))?;
    let temporary = temporary(to);
    fs::copy(from, &temporary).map_err(|error| format!("{}: {error}", from.display()))?;
    rename(&temporary, to)
}

pub(crate) fn temporary(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.{}", std::process::id()))
}

pub(crate) fn create_folder(folder: &Path) -> Result {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn remove_folder(folder: &Path) -> Result {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result {
    fs::rename(from, to).map_err(|error| format!("{}: {error}", to.display()))
}

fn list(dist: &Path) -> Result {
    let libraries = ["libaio.so.1", "libnowait_preload.so", "libnowait.so", "libnowait.a"]
        .map(|n| format!("lib/{n}"));
    let programs = PROGRAMS.iter().map(|(_, name)| format!("bin/{name}"));
    for file in libraries.into_iter().chain(programs) {
        let path = dist.join(file);
        let length = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let shown = path.strip_prefix(process::root()).unwrap_or(&path).display().to_string();
        println!("{shown:<32} {:>6} KiB", length.len().div_ceil(1024));
    }
    Ok(())
}
