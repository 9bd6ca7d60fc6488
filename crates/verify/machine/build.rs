//! Builds the C parts of the frontends, and the functions that observe atomic operations.

use std::{env, path::PathBuf, process::Command};

const COMPILED: [&str; 2] = ["c/faces.c", "c/atomics.c"];
/// Files that cause a new build when they change, besides the compiled ones.
const SOURCES: [&str; 4] = [
    "../../api/posix/posix.c",
    "../../api/libaio/cancel.h",
    "../../api/libaio/settle.h",
    "../../api/libaio/watch.h",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    COMPILED.iter().chain(&SOURCES).for_each(|source| println!("cargo::rerun-if-changed={source}"));
    // Every build compiles the C files, also one without a simulation, which does not use the
    // objects.
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let archive = folder.join("libsimulated_faces.a");
    for source in COMPILED {
        let object = folder.join(source.replace('/', "_")).with_extension("o");
        run(Command::new(&compiler)
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(["-c", source, "-o"])
            .arg(&object));
        run(Command::new("ar").arg("rcs").arg(&archive).arg(&object));
    }
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::rustc-link-lib=static=simulated_faces");
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
