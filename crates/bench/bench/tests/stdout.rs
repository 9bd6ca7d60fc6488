//! Checks a standard output whose reader has closed it, and a standard output that cannot be
//! written.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str], stdout: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    command.args(arguments).stdout(stdout).stderr(Stdio::piped());
    command.spawn().expect("it starts").wait_with_output().expect("a child of ours")
}

fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    OwnedFd::from(writer).into()
}

/// The second command line writes the file that the last two compare.
fn all_that_print(folder: &std::path::Path) -> Vec<Vec<String>> {
    let path = folder.join("paper.json").display().to_string();
    let run = |arguments: &[&str]| arguments.iter().map(|&one| one.to_owned()).collect();
    vec![
        run(&["rawio", "--list"]),
        run(&["paper", "--quick", "--json", &path]),
        run(&["submit", "--list"]),
        run(&["cached", "--list"]),
        run(&["paper", "--quick", "--json"]),
        run(&["compare", &path, &path]),
        run(&["compare", &path, &path, "--json"]),
    ]
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for arguments in all_that_print(folder.path()) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = bench(&arguments, closed_pipe());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn an_output_that_takes_nothing_is_told() {
    let full = || Stdio::from(File::create("/dev/full").expect("a device of every Linux"));
    let output = bench(&["rawio", "--list"], full());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("standard output"), "{stderr}");
    // The program writes the figures to the file although it cannot print the table.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("paper.json").display().to_string();
    let output = bench(&["paper", "--quick", "--json", &path], full());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("standard output") && !stderr.contains("panicked"), "{stderr}");
    assert!(std::fs::metadata(&path).is_ok_and(|found| found.len() > 0), "{path}");
    let compared = folder.path().join("compared.json");
    let output =
        bench(&["compare", &path, &path, &format!("--json={}", compared.display())], full());
    assert_eq!(output.status.code(), Some(1));
    assert!(std::fs::metadata(&compared).is_ok_and(|found| found.len() > 0), "{compared:?}");
}
