//! Real programs run small, through the program itself.

use std::path::Path;
use std::process::{Command, Output};

use nowait_block::conformance::note_skip_here;
use serde_json::Value;

/// Runs a case small with and without nowait; its JSON, unless a program is missing.
fn small(folder: &Path, case: &str) -> (Option<Value>, Output) {
    let json = folder.join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    // Where it finds `dist`.
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    command.args(["programs", "--engine=system,nowait", "--rounds=1", "--runtime=100ms"]);
    command.args(["--size=64M", "--keep-caches", "--case", case]);
    command.arg("--dir").arg(folder).arg("--json").arg(&json);
    let output = command.output().expect("the program starts");
    let text = std::fs::read_to_string(&json).ok();
    let document = text.map(|text| serde_json::from_str(&text).expect("JSON"));
    let _ = std::fs::remove_file(&json);
    (document, output)
}

/// Demands the figures of the overview of both ways.
fn is_measured(case: &str) {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let (document, output) = small(folder.path(), case);
    let (text, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if stderr.contains("make dist") || text.contains("was skipped") {
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
    is_measured("qemu-sparse-64k");
}

#[test]
fn what_is_missing_is_a_row_with_the_command_that_installs_it() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    command.args(["programs", "--quick", "--case=qemu-sparse-4k", "--keep-caches", "--dir"]);
    // Nothing is found in a folder that is empty, and QEMU lies in none of the system's.
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
