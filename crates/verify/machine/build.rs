//! Builds the C parts of the frontends for simulations.

use std::{env, path::PathBuf, process::Command};

/// Files whose changes cause a new build.
const SOURCES: [&str; 5] = [
    "c/faces.c",
    "../../api/posix/posix.c",
    "../../api/libaio/cancel.h",
    "../../api/libaio/settle.h",
    "../../api/libaio/watch.h",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    SOURCES.iter().for_each(|source| println!("cargo::rerun-if-changed={source}"));
    // Also in builds without a simulation: cargo does not say which build this is, and nothing
    // refers to the objects there.
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let object = folder.join("faces.o");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    run(Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(["-c", SOURCES[0], "-o"])
        .arg(&object));
    run(Command::new("ar").arg("crs").arg(folder.join("libsimulated_faces.a")).arg(&object));
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::rustc-link-lib=static=simulated_faces");
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
