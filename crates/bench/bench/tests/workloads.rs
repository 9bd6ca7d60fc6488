//! Runs workloads on small files with their engines, through the program itself. The runs check the
//! data that they read.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use nowait_block::skip::note_skip_here;
use serde_json::Value;

/// The program finds `dist` in the folder of this command.
fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    command
}

fn small(folder: &Path, arguments: &[&str]) -> (Option<Value>, Output) {
    let json = folder.join("report.json");
    let mut command = bench(arguments);
    command.args(["--rounds=1", "--runtime=50ms", "--keep-caches"]);
    if !arguments.iter().any(|argument| argument.starts_with("--size")) {
        command.arg("--size=16M");
    }
    command.arg("--device").arg(folder).arg("--json").arg(&json);
    let output = command.output().expect("the program starts");
    let text = std::fs::read_to_string(&json).ok();
    let document = text.map(|text| serde_json::from_str(&text).expect("JSON"));
    let _ = std::fs::remove_file(&json);
    (document, output)
}

fn engines(document: &Value) -> BTreeSet<String> {
    let rows = document["rows"].as_array().expect("rows");
    rows.iter().filter_map(|row| Some(row["engine"].as_str()?.to_owned())).collect()
}

/// Each engine of `wanted` must be in the report, or in a note that says why it was left out.
fn runs(arguments: &[&str], wanted: &[&str], cases: usize) {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let (document, output) = small(folder.path(), arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("O_DIRECT here") {
        return note_skip_here(stderr.trim());
    }
    assert!(output.status.success(), "{stderr}");
    let document = document.expect("a report");
    assert_eq!(document["params"]["cases"].as_array().map(Vec::len), Some(cases));
    let (found, notes) = (engines(&document), document["notes"].to_string());
    for engine in wanted {
        let left_out = |suffix| notes.contains(&format!("{engine}{suffix} was left out"));
        if ["", "-1", "-5", "-16", "-55"].into_iter().any(left_out) {
            note_skip_here(&notes);
        } else {
            let is = |name: &String| name == engine || name.starts_with(&format!("{engine}-"));
            assert!(found.iter().any(is), "{engine} is not in {found:?}");
        }
    }
    let left = std::fs::read_dir(folder.path()).expect("readable").count();
    assert_eq!(left, 0, "the test file is removed");
}

#[test]
fn aio_stress_runs_on_every_engine() {
    let wanted = [
        "nowait-user",
        "nowait-host",
        "nowait-direct",
        "libaio",
        "libaio-direct",
        "io_uring",
        "io_uring-direct",
        "io_uring-registered",
        "threads",
        "psync",
        "mmap",
        "null",
    ];
    runs(&["aio-stress"], &wanted, 6);
}

#[test]
fn rawio_runs_in_every_mode() {
    let arguments = ["rawio", "--case=random-read-4k,sequential-write-64k"];
    let wanted = [
        "psync-direct",
        "nowait-direct/overhead",
        "libaio-direct/batch",
        "io_uring-direct/minimum",
    ];
    let more = ["nowait-direct/minimum-x2"];
    runs(&arguments, &[&wanted[..], &more].concat(), 2);
}

#[test]
fn randrw_runs_in_every_mode_of_submit() {
    let wanted = ["libaio", "nowait-offload", "nowait-host", "nowait-user"];
    runs(&["randrw"], &wanted, 1);
}

#[test]
fn a_file_in_memory_is_a_device() {
    let mut command = bench(&["randrw", "--device=ram", "--engine=psync,null", "--quick"]);
    let output = command.args(["--size=8M", "--rounds=1", "--runtime=50ms"]).output();
    let output = output.expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("free and") {
        return note_skip_here(stderr.trim());
    }
    assert!(output.status.success(), "{stderr}");
    assert!(text.contains("ram · randrw") && text.contains("140 k IOPS"), "{text}");
}

#[test]
fn wrong_usage_is_told() {
    for (arguments, known) in [
        (&["aio-stress", "--engine=tape"][..], "nowait-user"),
        (&["aio-stress", "--case=zz"], "random-read"),
        (&["randrw", "--device=sim:hdd"], "bench paper"),
        (&["randrw", "--device=/nonexistent/folder/file"], "/nonexistent/folder"),
        (&["aio-stress", "--engine=mmap", "--case=random-write"], "--list"),
        (&["aio-stress", "--size=1k"], "at least 4 MiB"),
        (&["cached", "--size=1k"], "at least 16 MiB"),
        (&["vector", "--size=1k"], "at least 16 MiB"),
    ] {
        let output = bench(arguments).output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(known), "{stderr}");
    }
}

#[test]
fn a_wrong_option_is_told_in_one_line() {
    let output = bench(&["submit", "--rounds", "0"]).output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.starts_with("nowait: ") && output.stdout.is_empty(), "{stderr}");
}

#[test]
fn a_file_that_is_too_large_is_told_before_it_is_written() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let output = bench(&["aio-stress", "--size=8000T", "--device"]).arg(folder.path()).output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--size"));
}

#[test]
fn an_interrupted_measurement_leaves_a_valid_report() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let json = folder.path().join("report.json");
    let mut command = bench(&["aio-stress", "--engine=null", "--rounds=1000", "--size=16M"]);
    command.arg("--device").arg(folder.path()).arg("--json").arg(&json).arg("--keep-caches");
    let mut child = command.stdout(std::process::Stdio::null()).spawn().expect("it starts");
    // The runs begin when the program has written the file.
    let pages = folder.path().join("nowait-bench.pages");
    while std::fs::metadata(&pages).map_or(0, |found| found.len()) < 16 << 20 {
        assert!(child.try_wait().expect("a child of ours").is_none(), "it ended early");
        std::thread::yield_now();
    }
    let pid = child.id() as libc::pid_t;
    // SAFETY: `child` has not been reaped, so the process ID still belongs to it.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let status = child.wait().expect("a child of ours");
    assert_eq!(status.code(), Some(1));
    let text = std::fs::read_to_string(&json).expect("the report");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert!(document["notes"].to_string().contains("interrupted"), "{text}");
    assert!(!pages.exists(), "the test file is removed");
}

#[test]
fn the_paper_runs_small_on_a_folder() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let json = folder.path().join("paper.json");
    let mut command = bench(&["paper", "--quick", "--keep-caches", "--device"]);
    let output = command.arg(folder.path()).arg("--json").arg(&json).output();
    let output = output.expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = std::fs::read_to_string(&json).expect("the report");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let cases = document["params"]["cases"].to_string();
    for case in ["M1-random-read", "M7-segments-8", "M8-random-read", "M9-disk", "M9-ram"] {
        assert!(cases.contains(case), "{case}: {cases}");
    }
    assert!(cases.contains("10.08"), "{cases}");
}

#[test]
fn json_without_a_file_is_all_that_is_printed() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let mut command = bench(&["randrw", "--engine=null", "--size=16M", "--rounds=1", "--json"]);
    command.args(["--runtime=50ms", "--keep-caches", "--device"]).arg(folder.path());
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(document["workload"], "randrw");
    assert_eq!(engines(&document), BTreeSet::from(["null".to_owned()]));
}

#[test]
fn a_run_that_fails_is_told_and_not_tried_again() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let options = ["aio-stress", "--engine=psync,null", "--case=random-read", "--size=16M"];
    let mut command = bench(&options);
    command.args(["--rounds=2", "--runtime=1s", "--keep-caches", "--keep"]);
    command.arg("--device").arg(folder.path());
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Every second page stays unchanged: by those pages the program recognizes a test file.
    let path = folder.path().join("nowait-bench.pages");
    let mut bytes = std::fs::read(&path).expect("the test file");
    bytes.chunks_mut(4096).skip(1).step_by(2).for_each(|page| page.fill(7));
    std::fs::write(&path, bytes).expect("written");
    let output = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("case random-read, psync") && stderr.contains("wrong bytes"),
        "{stderr}"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("Note: failed").count(), 1, "it is not tried twice: {text}");
}

#[test]
fn requests_grow_over_files_contexts_and_threads() {
    let wanted = ["nowait-uring", "nowait-kaio", "nowait-threads", "libaio"];
    runs(&["growth", "--quick"], &wanted, 12);
}

#[test]
fn one_request_of_many_segments_stands_beside_many() {
    let wanted = ["split", "vector", "io_uring-split", "io_uring-vector"];
    runs(&["vector"], &wanted, 4);
}

#[test]
fn limits_stand_beside_what_is_made_of_them() {
    let wanted = ["empty-call", "memcpy", "io_uring-registered", "nowait-user", "nowait-direct"];
    runs(&["limits"], &wanted, 8);
}
