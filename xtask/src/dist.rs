//! Fills dist/: the tool, and the two shared objects linked by the C compiler.
//!
//! ```text
//!   crates/cli ─────────► dist/bin/nowait
//!   crates/faces (Rust) ──────────► libnowait_faces.a ─┐
//!   exports.c, libaio.map ─────────────────────────────┼─► dist/lib/libaio.so.1
//!   exports.c, preload.c, plain.c, posix.c, preload.map ┴─► dist/lib/libnowait_preload.so
//! ```
//!
//! The C compiler links because rustc cannot: two versions of one symbol need `symver` directives
//! together with a version script. Each file is checked under a temporary name and then renamed:
//! a failed build leaves the last good one, and a running program keeps what it has mapped.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{self, Result};
use crate::symbols;

/// Where the C files and the version scripts lie.
const SOURCES: &str = "crates";

/// What all shared objects are linked with.
///
/// `nodelete`: the engine has threads, so a `dlclose` must not unmap their code. `gc-sections`
/// and `exclude-libs` keep the Rust archive small and private. Debug information stays in, for
/// backtraces, compressed.
const LINK_FLAGS: &[&str] = &[
    "-shared",
    "-fPIC",
    "-O2",
    "-g1",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffunction-sections",
    "-Wl,--exclude-libs,ALL",
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
    version_script: &'static str,
    define: &'static str,
    check_exports: fn(&str) -> Result,
}

const LIBRARIES: &[Library] = &[
    Library {
        soname: "libaio.so.1",
        sources: &["libaio/exports.c"],
        version_script: "libaio/libaio.map",
        define: "-DNOWAIT_LIBAIO=1",
        check_exports: symbols::check_libaio,
    },
    Library {
        soname: "libnowait_preload.so",
        sources: &["libaio/exports.c", "libaio/preload.c", "libaio/plain.c", "posix/posix.c"],
        version_script: "libaio/preload.map",
        define: "-DNOWAIT_PRELOAD=1",
        check_exports: symbols::check_preload,
    },
];

/// The completions: shell, file under dist/share.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "bash-completion/completions/nowait"),
    ("zsh", "zsh/site-functions/_nowait"),
    ("fish", "fish/vendor_completions.d/nowait.fish"),
];

/// Builds in release mode, links, checks and installs everything into dist/.
///
/// # Errors
/// A build failed, or a shared object does not export exactly what it must.
pub(crate) fn run() -> Result {
    let dist = process::root().join("dist");
    build_tool(&dist)?;
    let natives = build_archive()?;
    for library in LIBRARIES {
        link(library, &natives, &dist.join("lib"))?;
    }
    link_alias(&dist.join("lib"))?;
    share(&dist)?;
    list(&dist)
}

fn build_tool(dist: &Path) -> Result {
    let args = ["build", "--release", "-p", "nowait-cli"];
    process::stream(process::command("cargo", &args), |line| println!("{line}"))?;
    install(&process::target().join("release/nowait"), &dist.join("bin/nowait"))
}

/// Builds the static archive; returns the system libraries that it says it needs.
fn build_archive() -> Result<Vec<String>> {
    const NATIVES: &str = "native-static-libs: ";
    let mut args = vec!["rustc", "--release", "-p", "nowait-faces", "--lib"];
    args.extend(["--crate-type", "staticlib", "--", "--print", "native-static-libs"]);
    let mut natives = None;
    process::stream(process::command("cargo", &args), |line| {
        if let Some((_, libraries)) = line.split_once(NATIVES) {
            natives = Some(libraries.split_whitespace().map(str::to_owned).collect());
        } else if !line.contains("native artifacts") && !line.is_empty() {
            println!("{line}");
        }
    })?;
    natives.ok_or_else(|| String::from("cargo did not say which native-static-libs are needed"))
}

fn link(library: &Library, natives: &[String], folder: &Path) -> Result {
    let sources = process::root().join(SOURCES);
    let script = sources.join(library.version_script);
    let archive = process::target().join("release/libnowait_faces.a");
    create_folder(folder)?;
    let temporary = temporary(&folder.join(library.soname));
    let compiler = std::env::var("CC").unwrap_or_else(|_| String::from("cc"));
    let mut command = process::command(&compiler, LINK_FLAGS);
    command.arg(library.define).arg(format!("-Wl,-soname,{}", library.soname));
    command.arg(format!("-Wl,--version-script={}", script.display()));
    command.args(library.sources.iter().map(|name| sources.join(name)));
    command.arg(archive).args(natives).arg("-o").arg(&temporary);
    process::stream(command, |line| println!("{line}"))?;
    check(library, &temporary).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    rename(&temporary, &folder.join(library.soname))
}

fn check(library: &Library, file: &Path) -> Result {
    let readelf = |option: &[&str]| {
        let mut command = process::command("readelf", option);
        command.arg("-W").arg(file);
        process::output(command)
    };
    (library.check_exports)(&readelf(&["--dyn-syms"])?)?;
    symbols::check_dynamic(&readelf(&["-d"])?, library.soname)
}

/// Adds the name that the library has on distributions with a 64-bit `time_t` transition.
fn link_alias(folder: &Path) -> Result {
    let alias = folder.join("libaio.so.1t64");
    let temporary = temporary(&alias);
    drop(fs::remove_file(&temporary));
    std::os::unix::fs::symlink("libaio.so.1", &temporary)
        .map_err(|error| format!("{}: {error}", alias.display()))?;
    rename(&temporary, &alias)
}

/// Asks the tool for its manual pages and its completions; one that has none is left alone.
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

fn install(from: &Path, to: &Path) -> Result {
    create_folder(to.parent().unwrap_or(to))?;
    let temporary = temporary(to);
    fs::copy(from, &temporary).map_err(|error| format!("{}: {error}", from.display()))?;
    rename(&temporary, to)
}

fn temporary(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.{}", std::process::id()))
}

fn create_folder(folder: &Path) -> Result {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn rename(from: &Path, to: &Path) -> Result {
    fs::rename(from, to).map_err(|error| format!("{}: {error}", to.display()))
}

fn list(dist: &Path) -> Result {
    for file in ["bin/nowait", "lib/libaio.so.1", "lib/libnowait_preload.so"] {
        let path = dist.join(file);
        let length = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("dist/{file:<26} {:>6} KiB", length.len().div_ceil(1024));
    }
    Ok(())
}
