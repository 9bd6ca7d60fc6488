//! The C API in dist/: header, shared and static library, pkg-config file, manual page.
//!
//! ```text
//!   crates/api/capi (Rust) ─► libnowait_capi.a ─┬─ cc -shared, nowait.map ─► lib/libnowait.so.0
//!                                           └─ ld -r, objcopy ─────────► lib/libnowait.a
//!   include/nowait.h, nowait.pc.in, nowait.3 ─────────────────────────► include, lib, share
//! ```
//!
//! Both libraries show only the functions of the version script: a program may contain Rust of its
//! own, also of another version. The linker fails where one is missing; `tests/tests/c_api.rs`
//! compares the lists.

use std::fs;
use std::path::Path;

use crate::dist::{self, build_archive, create_folder, rename, temporary};
use crate::machine::Machine;
use crate::places;
use crate::process::{self, Result};
use crate::symbols;

const SOURCES: &str = "crates/api/capi";
const PACKAGE: &str = "nowait-capi";
const ARCHIVE: &str = "libnowait_capi.a";

/// Changes when a program that was linked before could not run any more.
pub(crate) const SONAME: &str = "libnowait.so.0";

/// Builds in release mode, links, checks and installs.
///
/// # Errors
/// A build failed, or a library lacks a function that the version script names.
pub(crate) fn install(machine: Machine) -> Result {
    let dist = machine.dist();
    let sources = process::root().join(SOURCES);
    let map = sources.join("nowait.map");
    let script = read(&map)?;
    let functions = functions(&script);
    places::unpack(machine);
    let natives = build_archive(machine, PACKAGE)?;
    let libraries = dist.join("lib");
    create_folder(&libraries)?;
    link_shared(machine, (&functions, &map), &natives, &libraries)?;
    link_static(machine, &functions, &libraries)?;
    dist::install(&sources.join("include/nowait.h"), &dist.join("include/nowait.h"))?;
    dist::install(&sources.join("nowait.3"), &dist.join("share/man/man3/nowait.3"))?;
    let package = read(&sources.join("nowait.pc.in"))?
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@LIBS_PRIVATE@", &natives.join(" "));
    let file = libraries.join("pkgconfig/nowait.pc");
    create_folder(&libraries.join("pkgconfig"))?;
    fs::write(&file, package).map_err(|error| format!("{}: {error}", file.display()))
}

fn link_shared(
    machine: Machine,
    (functions, map): (&[&str], &Path),
    natives: &[String],
    folder: &Path,
) -> Result {
    let temporary = temporary(&folder.join(SONAME));
    let mut command = machine.compiler(dist::LINK_FLAGS);
    command.arg(format!("-Wl,-soname,{SONAME}"));
    command.arg(format!("-Wl,--version-script={}", map.display()));
    // Nothing else refers to what the archive has.
    command.args(functions.iter().map(|name| format!("-Wl,--require-defined={name}")));
    command.arg(machine.built(ARCHIVE)).args(natives).arg("-o").arg(&temporary);
    process::stream(command, |line| println!("{line}"))?;
    let mut dynamic = process::command("readelf", &["-W", "-d"]);
    dynamic.arg(&temporary);
    process::output(dynamic)
        .and_then(|dynamic| symbols::check_dynamic(&dynamic, SONAME))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    rename(&temporary, &folder.join(SONAME))?;
    dist::link_alias(folder, "libnowait.so", SONAME)
}

/// Links all of the archive into one object, and hides every symbol of it but ours.
fn link_static(machine: Machine, functions: &[&str], folder: &Path) -> Result {
    // Its name stands in the library.
    let object = machine.built("nowait.o");
    let library = folder.join("libnowait.a");
    let archive = temporary(&library);
    let mut link = machine.tool("ld", &["-r", "--force-group-allocation"]);
    link.args(functions.iter().map(|name| format!("--require-defined={name}")));
    link.arg(machine.built(ARCHIVE)).arg("-o").arg(&object);
    // Bitcode of the standard library, which an older LLVM among the tools takes for an error.
    let bitcode = ["--remove-section=.llvmbc", "--remove-section=.llvmcmd"];
    let mut hide = machine.tool("objcopy", &["--compress-debug-sections=zlib"]);
    hide.args(bitcode);
    hide.args(functions.iter().map(|name| format!("--keep-global-symbol={name}"))).arg(&object);
    let mut pack = machine.tool("ar", &["crsD"]);
    pack.args([&archive, &object]);
    drop(fs::remove_file(&archive));
    let packed = [link, hide, pack]
        .into_iter()
        .try_for_each(|command| process::stream(command, |line| println!("{line}")));
    drop(fs::remove_file(&object));
    packed.inspect_err(|_| drop(fs::remove_file(&archive)))?;
    rename(&archive, &library)
}

/// Returns the names in a version script.
fn functions(script: &str) -> Vec<&str> {
    let words = script.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("nowait_")).collect()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
