//! The C API in dist/: header, shared and static library, pkg-config file, manual page.
//!
//! ```text
//!   crates/api/capi (Rust) ─► libnowait_capi.a ─┬─ cc -shared, nowait.map ─► lib/libnowait.so.0
//!                                               └─ ld -r, objcopy ─────────► lib/libnowait.a
//!   include/nowait.h, nowait.pc.in, nowait.3 ──────────────────────────────► include, lib, share
//! ```
//!
//! Both libraries export only the functions of the version script, because a program may contain
//! other Rust code, even of another compiler version. The linker fails if a function of the script
//! is missing; `tests/tests/c_api.rs` compares the exported functions with the script.

use std::fs;
use std::path::Path;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::dist::{self, build_archive, rename, temporary};
use crate::machine::Machine;
use crate::places;
use crate::process;
use crate::symbols;

const SOURCES: &str = "crates/api/capi";
const ARCHIVE: &str = "libnowait_capi.a";

/// The name of the shared library. It changes if programs that were linked with an earlier library
/// cannot run with the new one.
pub(crate) const SONAME: &str = "libnowait.so.0";

pub(crate) fn install(machine: Machine) -> Result<()> {
    let (sh, dist) = (process::shell()?, machine.dist());
    let (sources, libraries) = (process::root().join(SOURCES), dist.join("lib"));
    let map = sources.join("nowait.map");
    let script = sh.read_file(&map)?;
    let words = script.split(|c: char| !c.is_alphanumeric() && c != '_');
    let functions: Vec<&str> = words.filter(|word| word.starts_with("nowait_")).collect();
    places::unpack(&sh, machine);
    let natives = build_archive(&sh, machine, "nowait-capi")?;
    sh.create_dir(&libraries)?;
    link_shared(&sh, machine, (&functions, &map), &natives, &libraries)?;
    link_static(&sh, machine, &functions, &libraries)?;
    dist::install(&sh, &sources.join("include/nowait.h"), &dist.join("include/nowait.h"))?;
    dist::install(&sh, &sources.join("nowait.3"), &dist.join("share/man/man3/nowait.3"))?;
    let package = sh.read_file(sources.join("nowait.pc.in"))?;
    let package = package.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    let package = package.replace("@LIBS_PRIVATE@", &natives.join(" "));
    Ok(sh.write_file(libraries.join("pkgconfig/nowait.pc"), package)?)
}

fn link_shared(
    sh: &Shell,
    machine: Machine,
    (functions, map): (&[&str], &Path),
    natives: &[String],
    folder: &Path,
) -> Result<()> {
    let (library, archive) = (folder.join(SONAME), machine.built(ARCHIVE));
    let temporary = temporary(&library);
    let link = machine.linker(sh, SONAME, map);
    // Nothing else refers to the functions of the archive, so the linker would drop them.
    let link = link.args(functions.iter().map(|name| format!("-Wl,--require-defined={name}")));
    process::run(link.arg(archive).args(natives).arg("-o").arg(&temporary))?;
    process::output(cmd!(sh, "readelf -W -d {temporary}"))
        .and_then(|dynamic| symbols::check_dynamic(&dynamic, SONAME))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    rename(&temporary, &library)?;
    dist::link_alias(sh, folder, "libnowait.so", SONAME)
}

fn link_static(sh: &Shell, machine: Machine, functions: &[&str], folder: &Path) -> Result<()> {
    // Programs that read the library's symbols show the name of this object.
    let object = machine.built("nowait.o");
    let library = folder.join("libnowait.a");
    let archive = temporary(&library);
    let link = machine.tool(sh, "ld").args(["-r", "--force-group-allocation"]);
    let link = link.args(functions.iter().map(|name| format!("--require-defined={name}")));
    // Tools with an older LLVM fail on the bitcode of the standard library.
    let bitcode = ["--remove-section=.llvmbc", "--remove-section=.llvmcmd"];
    let hide = machine.tool(sh, "objcopy").arg("--compress-debug-sections=zlib").args(bitcode);
    let hide = hide.args(functions.iter().map(|name| format!("--keep-global-symbol={name}")));
    let packed = [
        link.arg(machine.built(ARCHIVE)).arg("-o").arg(&object),
        hide.arg(&object),
        machine.tool(sh, "ar").arg("crsD").arg(&archive).arg(&object),
    ];
    let packed = packed.into_iter().try_for_each(process::run);
    drop(fs::remove_file(&object));
    packed.inspect_err(|_| drop(fs::remove_file(&archive)))?;
    rename(&archive, &library)
}
