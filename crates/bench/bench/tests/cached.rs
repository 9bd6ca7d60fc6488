//! Runs every case of `bench cached` on small files, through the program itself.

use nowait_block::skip::note_skip_here;
use std::process::Command;

#[test]
fn every_case_runs_small_and_reads_what_was_written() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let json = folder.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    command.args(["cached", "--keep-caches", "--rounds=1", "--runtime=50ms", "--size=16M"]);
    command.arg("--dir").arg(folder.path()).arg("--json").arg(&json);
    let output = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("cannot be used here") || stderr.contains("Invalid argument") {
        return note_skip_here(stderr.trim());
    }
    assert!(output.status.success(), "{stderr}");
    let text = std::fs::read_to_string(&json).expect("the report");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["workload"], "cached");
    let cases = document["params"]["cases"].as_array().map_or(0, Vec::len);
    assert_eq!(cases, 13);
    let first = &document["params"]["cases"][0];
    assert_eq!((&first["block_bytes"], &first["write"]), (&4096.into(), &false.into()));
    assert!(document["rows"].as_array().is_some_and(|rows| rows.len() > 13 * 8));
    let names = std::fs::read_dir(folder.path()).expect("readable").count();
    assert_eq!(names, 1, "test files are removed");
}

#[test]
fn a_wrong_case_is_wrong_usage() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    let output = command.args(["cached", "--case=zz"]).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("a-4k"));
}
