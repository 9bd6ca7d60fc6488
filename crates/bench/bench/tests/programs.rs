//! Runs real programs briefly and on small files, through `nowait-bench` itself.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use nowait_block::skip::note_skip_here;
use serde_json::Value;

fn small(folder: &Path, python: &Path, case: &str) -> (Option<Value>, Output) {
    let json = folder.join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    // The program finds `dist` in this folder.
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    command.args(["programs", "--engine=system,nowait", "--rounds=1", "--runtime=100ms"]);
    command.args(["--size=64M", "--keep-caches", "--case", case]);
    command.arg("--dir").arg(folder).arg("--json").arg(&json).arg("--python").arg(python);
    let output = command.output().expect("the program starts");
    let text = std::fs::read_to_string(&json).ok();
    let document = text.map(|text| serde_json::from_str(&text).expect("JSON"));
    let _ = std::fs::remove_file(&json);
    (document, output)
}

fn is_measured(case: &str, python: &Path) {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let (document, output) = small(folder.path(), python, case);
    let (text, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if stderr.contains("make dist") || text.contains("was left out") {
        return note_skip_here(&format!("{text}{stderr}"));
    }
    assert!(output.status.success(), "{text}{stderr}");
    let document = document.expect("a report");
    let rows = document["rows"].as_array().expect("rows");
    for engine in ["system", "nowait"] {
        for metric in ["latency_us_p99", "held_up_us_max", "cpu_us_per_operation"] {
            let is = |row: &&Value| row["engine"] == engine && row["metric"] == metric;
            let median = rows.iter().find(is).and_then(|row| row["median"].as_f64());
            assert!(median.is_some_and(|median| median > 0.0), "{engine}, {metric}: {text}");
        }
    }
    assert!(text.contains("longest hold-up") && text.contains("× itself"), "{text}");
    let left = std::fs::read_dir(folder.path()).expect("readable").count();
    assert_eq!(left, 0, "the files of the programs are removed");
}

#[test]
fn qemu_is_measured_on_a_sparse_image() {
    is_measured("qemu-sparse-64k", Path::new("/nonexistent"));
}

#[test]
fn sysbench_reads_its_files() {
    is_measured("sysbench-direct", Path::new("/nonexistent"));
}

#[test]
fn mariadb_serves_transactions_from_tables_larger_than_its_pool() {
    is_measured("mariadb-direct", Path::new("/nonexistent"));
}

/// A stand-in for caio, which would have to be downloaded. It reads in threads.
const CAIO: [(&str, &str); 3] = [
    ("caio/__init__.py", ""),
    (
        "caio/linux_aio_asyncio.py",
        "import asyncio, os\n\
         class AsyncioContext:\n\
         \x20   def __init__(self, max_requests): pass\n\
         \x20   async def __aenter__(self): return self\n\
         \x20   async def __aexit__(self, *error): pass\n\
         \x20   def read(self, count, file, offset):\n\
         \x20       return asyncio.to_thread(os.pread, file, count, offset)\n",
    ),
    ("caio-0.12.10.dist-info/METADATA", "Metadata-Version: 2.1\nName: caio\nVersion: 0.12.10\n"),
];

#[test]
fn an_event_loop_of_python_is_watched() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let packages = folder.path().join("packages");
    for (name, text) in CAIO {
        let path = packages.join(name);
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("a folder");
        std::fs::write(path, text).expect("a package");
    }
    let python = folder.path().join("bin/python3");
    std::fs::create_dir(folder.path().join("bin")).expect("a folder");
    let script = format!("#!/bin/sh\nPYTHONPATH={} exec python3 \"$@\"\n", packages.display());
    std::fs::write(&python, script).expect("a Python with the package");
    std::fs::set_permissions(&python, Permissions::from_mode(0o755)).expect("executable");
    is_measured("caio-64k", folder.path());
}

#[test]
fn a_package_that_is_missing_comes_with_the_command_that_installs_it() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let (_, output) = small(folder.path(), Path::new("/nonexistent/python"), "caio-4k");
    let (text, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if stderr.contains("make dist") {
        return note_skip_here(&stderr);
    }
    assert!(output.status.success(), "{stderr}");
    let command = "/nonexistent/python/bin/pip install --no-deps caio==0.12.10";
    assert!(text.contains("skipped") && text.contains(command), "{text}");
}

#[test]
fn what_is_missing_is_a_row_with_the_command_that_installs_it() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    command.args(["programs", "--quick", "--case=qemu-sparse-4k", "--keep-caches", "--dir"]);
    // No program is in an empty folder, and QEMU is not in folders such as /usr/sbin.
    let output = command.arg(folder.path()).env("PATH", folder.path()).output();
    let output = output.expect("the program starts");
    let (text, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if stderr.contains("make dist") {
        return note_skip_here(&stderr);
    }
    assert!(output.status.success(), "{stderr}");
    assert!(text.contains("skipped") && text.contains("apt install qemu-system-common"), "{text}");
}
