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
//! together with a version script. Libraries and programs get their final names only when they are
//! complete: a failed build leaves the last good file, and a running program keeps the file that it
//! has mapped. The same sources give the same bytes (places.rs); packaging/test/reproducible.sh
//! checks that.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::FEATURES;
use crate::machine::{Machine, OWN};
use crate::process::{self, root};
use crate::{c_api, debug_file, places, symbols};

const SOURCES: &str = "crates/api";

struct Library {
    soname: &'static str,
    sources: &'static [&'static str],
    /// How many of `sources`, from the first on, a build with musl uses.
    sources_with_musl: usize,
    version_script: &'static str,
    define: &'static str,
    check_exports: fn(Machine, &str) -> Result<()>,
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
        // The other sources replace functions of glibc: see docs/installing.md.
        sources_with_musl: 2,
        version_script: "libaio/preload.map",
        define: "-DNOWAIT_PRELOAD=1",
        check_exports: symbols::check_preload,
    },
];

const PROGRAMS: &[(&str, &str)] =
    &[("nowait-cli", "nowait"), ("nowait-bench", "nowait-bench"), ("nowait-serve", "nowait-serve")];

const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "bash-completion/completions/nowait"),
    ("zsh", "zsh/site-functions/_nowait"),
    ("fish", "fish/vendor_completions.d/nowait.fish"),
];

const UNITS: &[(&str, &str)] = &[
    ("nowait-serve@.service", "systemd/system/nowait-serve@.service"),
    ("nowait-serve@.socket", "systemd/system/nowait-serve@.socket"),
    ("nowait.sysusers.conf", "sysusers.d/nowait.conf"),
    ("nowait.tmpfiles.conf", "tmpfiles.d/nowait.conf"),
];

pub(crate) fn run(machine: Machine) -> Result<()> {
    let (sh, dist) = (process::shell()?, machine.dist());
    places::unpack(&sh, machine);
    if machine.is_musl() {
        return link_libraries(machine);
    }
    // Debug information of earlier builds belongs to no program of this one.
    sh.remove_path(dist.join("lib/debug"))?;
    build_programs(&sh, machine, PROGRAMS)?;
    link_libraries(machine)?;
    c_api::install(machine)?;
    // The program prints its pages and completions, and only programs for this machine can run
    // here.
    if machine.is_own() {
        share(&sh)?;
    }
    for (from, to) in UNITS {
        install(&sh, &root().join("contrib/systemd").join(from), &dist.join("lib").join(to))?;
    }
    Ok(())
}

/// Optimizing the libraries occupies one processor; others compile the benchmarks.
pub(crate) fn run_for_demo() -> Result<()> {
    println!("demo: building libaio.so.1, libnowait_preload.so and nowait-bench");
    thread::scope(|scope| {
        let bench = scope.spawn(build_demo);
        link_libraries(OWN)?;
        bench.join().expect("cargo is run without a panic")
    })
}

fn build_demo() -> Result<()> {
    let sh = process::shell()?;
    let build = OWN.cargo(&sh, &["build", "--profile", "demo", "-p", "nowait-bench"])?;
    // Two builds would overwrite each other's progress bars.
    process::run(build.env("CARGO_TERM_PROGRESS_WHEN", "never"))
}

pub(crate) fn link_libraries(machine: Machine) -> Result<()> {
    let (sh, folder) = (process::shell()?, machine.dist().join("lib"));
    let natives = build_archive(&sh, machine, "nowait-faces")?;
    for library in LIBRARIES {
        link(&sh, machine, library, &natives, &folder.join(library.soname))?;
    }
    link_alias(&sh, &folder, "libaio.so.1t64", "libaio.so.1")
}

/// If `NOWAIT_TOOL_FOR_TESTS` is set, builds the programs like the tests: with assertions, and in
/// half the time, because the tests need the same dependencies.
fn build_programs(sh: &Shell, machine: Machine, programs: &[(&str, &str)]) -> Result<()> {
    let built = if env::var_os("NOWAIT_TOOL_FOR_TESTS").is_some() && machine.is_own() {
        process::run(cmd!(sh, "cargo build --workspace --all-targets --features {FEATURES}"))?;
        process::target().join("debug")
    } else {
        let packages = programs.iter().flat_map(|(package, _)| ["-p", package]);
        process::run(machine.cargo(sh, &["build", "--release"])?.args(packages))?;
        machine.built("")
    };
    let (bin, debug) = (machine.dist().join("bin"), machine.dist().join("lib/debug"));
    for (_, name) in programs {
        debug_file::install(sh, machine, &built.join(name), &bin.join(name), &debug)?;
    }
    Ok(())
}

pub(crate) fn build_archive(sh: &Shell, machine: Machine, package: &str) -> Result<Vec<String>> {
    const NATIVES: &str = "native-static-libs: ";
    let build = machine.cargo(sh, &["rustc", "--release", "--lib", "--crate-type", "staticlib"])?;
    let mut natives = None;
    let build = build.args(["-p", package, "--", "--print", "native-static-libs"]);
    process::stream(build, |line| {
        if let Some((_, libraries)) = line.split_once(NATIVES) {
            natives = Some(libraries.split_whitespace().map(str::to_owned).collect());
        } else if !line.contains("native artifacts") && !line.is_empty() {
            println!("{line}");
        }
    })?;
    natives.context("cargo did not say which native-static-libs are needed")
}

fn link(
    sh: &Shell,
    machine: Machine,
    library: &Library,
    natives: &[String],
    to: &Path,
) -> Result<()> {
    let (sources, temporary) = (root().join(SOURCES), temporary(to));
    sh.create_dir(to.parent().unwrap_or(to))?;
    let parts = if machine.is_musl() { library.sources_with_musl } else { library.sources.len() };
    let natives = natives.iter().map(|name| machine.native(name)).collect::<Result<Vec<_>>>()?;
    // `--exclude-libs` hides the functions of the archive: only the C files export functions.
    let link = machine
        .linker(sh, library.soname, &sources.join(library.version_script))
        .args([library.define, "-Wl,--exclude-libs,ALL"])
        .args(library.sources[..parts].iter().map(|name| sources.join(name)))
        .arg(machine.built("libnowait_faces.a"))
        .args(natives);
    process::run(link.arg("-o").arg(&temporary))?;
    let check = || {
        let symbols = process::output(cmd!(sh, "readelf --dyn-syms -W {temporary}"))?;
        (library.check_exports)(machine, &symbols)?;
        let dynamic = process::output(cmd!(sh, "readelf -d -W {temporary}"))?;
        symbols::check_dynamic(&dynamic, library.soname)
    };
    check().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    rename(&temporary, to)
}

/// The alias is the name of libaio in distributions that changed to a 64-bit `time_t`, or the name
/// by which the linker finds libnowait.
pub(crate) fn link_alias(sh: &Shell, folder: &Path, alias: &str, library: &str) -> Result<()> {
    let temporary = temporary(&folder.join(alias));
    process::run(cmd!(sh, "ln -s -f {library} {temporary}"))?;
    rename(&temporary, &folder.join(alias))
}

fn share(sh: &Shell) -> Result<()> {
    let pages = sh.create_dir("dist/share/man/man1")?;
    process::output(cmd!(sh, "dist/bin/nowait man {pages}"))?;
    for (shell, file) in COMPLETIONS {
        let text = process::output(cmd!(sh, "dist/bin/nowait completions {shell}"))?;
        ensure!(!text.is_empty(), "nowait has no completions for {shell}");
        sh.write_file(Path::new("dist/share").join(file), text)?;
    }
    Ok(())
}

pub(crate) fn install(sh: &Shell, from: &Path, to: &Path) -> Result<()> {
    process::run(cmd!(sh, "install -D --mode=644 {from} {to}"))
}

pub(crate) fn temporary(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.{}", std::process::id()))
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| to.display().to_string())?;
    let shown = to.strip_prefix(root()).unwrap_or(to).display().to_string();
    println!("{shown:<32} {:>6} KiB", fs::metadata(to)?.len().div_ceil(1024));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_installed_where_distributions_have_it_and_removed() {
        let sh = process::shell().unwrap();
        let folder = env::temp_dir().join(format!("nowait-install-{}", std::process::id()));
        let (dist, to) = (folder.join("dist"), folder.join("to"));
        let run = |what: &str, prefix: &str| {
            let install = cmd!(sh, "bash packaging/install.sh {what} {to} {prefix} {prefix}/lib/x");
            process::output(install.env("DIST", &dist))
        };
        let pc = "prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\n";
        let files = [
            ("bin/nowait", "", "usr/bin/nowait"),
            ("bin/nowait-bench", "", "usr/bin/nowait-bench"),
            ("bin/nowait-serve", "", "usr/bin/nowait-serve"),
            ("include/nowait.h", "", "usr/include/nowait.h"),
            ("lib/.libaio.so.1.7", "", ""),
            ("lib/debug/a.debug", "", "usr/lib/debug/a.debug"),
            ("lib/libaio.so.1", "", "usr/lib/nowait/libaio.so.1"),
            ("lib/libnowait.so.0", "", "usr/lib/x/libnowait.so.0"),
            ("lib/pkgconfig/nowait.pc", pc, "usr/lib/x/pkgconfig/nowait.pc"),
            ("lib/systemd/a.service", "=/usr/bin/nowait-serve x", "usr/lib/systemd/a.service"),
            ("share/man/a.1", "", "usr/share/man/a.1"),
        ];
        assert!(run("install", "/usr").is_err(), "dist is empty");
        for (file, text, _) in files {
            sh.write_file(dist.join(file), text).unwrap();
        }
        link_alias(&sh, &dist.join("lib"), "libaio.so.1t64", "libaio.so.1").unwrap();
        assert!(run("install", "usr").is_err(), "a relative path");
        run("install", "/usr").unwrap();
        for (_, _, place) in files {
            assert!(to.join(place).exists(), "{place}");
        }
        let pc = sh.read_file(to.join("usr/lib/x/pkgconfig/nowait.pc")).unwrap();
        assert_eq!(pc, "prefix=/usr\nlibdir=/usr/lib/x\n");
        let alias = fs::read_link(to.join("usr/lib/nowait/libaio.so.1t64")).unwrap();
        assert_eq!(alias, Path::new("libaio.so.1"));
        run("install", "/opt").unwrap();
        let unit = sh.read_file(to.join("opt/lib/systemd/a.service")).unwrap();
        assert_eq!(unit, "=/opt/bin/nowait-serve x");
        for prefix in ["/usr", "/opt"] {
            run("uninstall", prefix).unwrap();
        }
        let left = walkdir::WalkDir::new(&to).into_iter().flatten();
        assert_eq!(left.filter(|it| !it.file_type().is_dir()).count(), 0);
        assert!(!to.join("usr/lib/nowait").exists());
        sh.remove_path(&folder).unwrap();
    }
}
