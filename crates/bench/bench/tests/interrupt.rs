//! Ctrl-C leaves a valid report of the earlier runs, and no test files.

use nowait_block::skip::note_skip_here;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_mins(3);
const SIGINT_BIT: u64 = 1 << (libc::SIGINT - 1);

/// Returns `false` if the child ends before `there` returns `true`.
fn wait_for(what: &str, child: &mut Child, mut there: impl FnMut(u32) -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !there(child.id()) {
        if child.try_wait().expect("a child").is_some() {
            return false;
        }
        assert!(Instant::now() < deadline, "no {what}");
        // A change in /proc causes no event; a busy loop would take the processor from the runs.
        std::thread::park_timeout(Duration::from_millis(2));
    }
    true
}

fn catches_sigint(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & SIGINT_BIT != 0)
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn largest_file(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).max().unwrap_or(0)
}

const DIR: Option<&str> = Some("--dir");
const LONG: [&str; 3] = ["--rounds=1000", "--runtime=50ms", "--size=16M"];

/// Sends SIGINT after `runs` programs have started. `None`: the workload cannot run here.
fn interrupted(
    workload: &str,
    place: Option<&str>,
    arguments: &[&str],
    runs: usize,
) -> Option<serde_json::Value> {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let reports = tempfile::tempdir().expect("a temporary folder");
    let (json, html) = (reports.path().join("r.json"), reports.path().join("r.html"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    command.arg(workload).args(arguments).arg("--json").arg(&json).arg("--html").arg(&html);
    if let Some(place) = place {
        command.arg(place).arg(folder.path());
    }
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut seen = BTreeSet::new();
    let ready = wait_for("handler", &mut child, catches_sigint)
        && wait_for("runs", &mut child, |pid| {
            seen.extend(children(pid));
            seen.len() >= runs
        })
        && (runs > 0
            || place.is_none()
            || wait_for("file", &mut child, |_| largest_file(folder.path()) >= 16 << 20));
    if ready {
        let pid = libc::pid_t::try_from(child.id()).expect("a process id");
        // SAFETY: the arguments are numbers; the process is a child that has not been reaped.
        unsafe { libc::kill(pid, libc::SIGINT) };
    }
    let output = child.wait_with_output().expect("a child");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !ready {
        note_skip_here(&format!("{workload}: {}", stderr.trim()));
        return None;
    }
    assert_eq!(output.status.code(), Some(1), "{workload}: {stderr}");
    assert!(stderr.contains("interrupted"), "{workload}: {stderr}");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("readable").flatten().collect();
    assert!(left.is_empty(), "{workload}: {left:?}");
    let page = fs::read_to_string(&html).expect("the page");
    assert!(page.ends_with("</html>\n") && page.contains("\"partial\": true"), "{workload}");
    let text = fs::read_to_string(&json).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!((&report["schema"], &report["partial"]), (&1.into(), &true.into()), "{workload}");
    Some(report)
}

/// The signal comes after seven programs: fio for its version, three probes, and three runs.
#[test]
fn what_fio_has_measured_is_reported() {
    for (workload, engine) in [("submit", "system"), ("posix", "posixaio")] {
        let arguments = [&LONG[..], &["--keep-caches", "--engine", engine]].concat();
        let Some(report) = interrupted(workload, DIR, &arguments, 7) else { continue };
        let rows = report["rows"].as_array().expect("a list");
        assert!(!rows.is_empty(), "{workload}");
        assert!(rows.iter().all(|row| row["median"].is_number() && row["mad"].is_number()));
    }
}

#[test]
fn what_was_measured_of_the_cache_is_reported() {
    let arguments = [&LONG[..], &["--keep-caches", "--case=a-4k", "--engine=psync"]].concat();
    let Some(report) = interrupted("cached", DIR, &arguments, 3) else { return };
    assert!(report["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
}

#[test]
fn a_measurement_ends_with_its_budget() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let json = folder.path().join("r.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    let case = ["--case=threads-1", "--engine=libaio", "--budget=2s", "--device"];
    command.arg("growth").args(LONG).args(case).arg(folder.path()).arg("--json").arg(&json);
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("O_DIRECT") {
        return note_skip_here(stderr.trim());
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--budget is over"), "{stderr}");
    let text = fs::read_to_string(&json).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(report["partial"], true, "{text}");
    assert!(report["notes"].to_string().contains("--budget is over"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1, "the report alone");
}

#[test]
fn a_simulation_ends_after_the_table_it_is_at() {
    let report = interrupted("paper", None, &["--quick"], 0).expect("needs nothing");
    // All tables have 180 rows; the signal comes before the last table begins.
    assert!(report["ratios"].as_array().is_some_and(|ratios| ratios.len() < 180));
}

/// The first case has 12 engines, so after 20 runs its first round is over.
#[test]
fn the_paper_on_a_device_reports_the_cases_that_were_whole() {
    let arguments = ["--quick", "--keep-caches", "--rounds=1000"];
    let (runs, device) = (20, Some("--device"));
    let Some(report) = interrupted("paper", device, &arguments, runs) else { return };
    let rows = report["rows"].as_array().expect("a list");
    assert!(rows.iter().any(|row| row["case"] == "M1-random-read"), "{report}");
    assert!(report["notes"].to_string().contains("interrupted"), "{report}");
}
