//! The report of `nowait doctor`, also under real seccomp filters.

mod support;

use serde_json::Value;
use std::path::Path;
use support::{KAIO, URING, libraries, nowait, outcome, refuse};

fn doctor(args: &[&str], refused: &[i64], errno: i32) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    libraries(dir.path());
    let mut command = nowait(&["doctor", "--json"]);
    command.args(args).env("NOWAIT_LIBDIR", dir.path());
    if !refused.is_empty() {
        refuse(&mut command, refused, errno);
    }
    let (code, out, err) = outcome(&mut command);
    assert_eq!(err, "");
    (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}")))
}

fn backend<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["backends"].as_array().unwrap();
    all.iter().find(|backend| backend["name"] == name).unwrap()
}

fn refusal(report: &Value, name: &str) -> (String, String, String) {
    let refusal = &backend(report, name)["refusal"];
    let text = |key: &str| refusal[key].as_str().unwrap_or_default().to_owned();
    (text("call"), text("errno_name"), text("cause"))
}

fn words(call: &str, errno: &str, cause: &str) -> (String, String, String) {
    (call.to_owned(), errno.to_owned(), cause.to_owned())
}

#[test]
fn the_report_is_json_and_all_is_well_here() {
    let (code, report) = doctor(&[], &[], 0);
    assert_eq!((code, &report["problems"]), (0, &serde_json::json!([])), "{report:#}");
    assert_eq!(report["schema"], 1);
    assert_eq!(backend(&report, "threads")["usable"], true);
    for library in report["libraries"].as_array().unwrap() {
        assert_eq!(library["loads"], true, "{library}");
    }
    assert!(report["host"]["nofile"]["soft"].as_u64().is_some_and(|limit| limit > 0));
}

#[test]
fn uring_refused_with_eperm_is_the_filter_s_doing_and_kaio_is_next() {
    let (code, report) = doctor(&[], URING, libc::EPERM);
    assert_eq!(code, 0, "a refused backend is no failure");
    assert_eq!(refusal(&report, "uring"), words("io_uring_setup", "EPERM", "seccomp"));
    assert_eq!(report["host"]["seccomp"], "filter");
    if backend(&report, "kaio")["usable"] == true {
        assert_eq!(report["auto"]["backend"], "kaio");
    }
    assert!(report["auto"]["reason"].as_str().unwrap().contains("seccomp"));
}

#[test]
fn everything_refused_with_enosys_leaves_the_threads() {
    let (code, report) = doctor(&[], &[URING, KAIO].concat(), libc::ENOSYS);
    assert_eq!(code, 0);
    assert_eq!(refusal(&report, "uring"), words("io_uring_setup", "ENOSYS", "seccomp"));
    assert_eq!(refusal(&report, "kaio"), words("io_setup", "ENOSYS", "seccomp"));
    assert_eq!(report["auto"]["backend"], "threads");
}

#[test]
fn a_filter_on_the_second_call_is_found_by_using_the_backend() {
    let (_, report) = doctor(&[], &[libc::SYS_io_uring_enter, libc::SYS_io_submit], libc::EPERM);
    assert_eq!(refusal(&report, "uring"), words("io_uring_enter", "EPERM", "seccomp"));
    assert_eq!(refusal(&report, "kaio"), words("io_submit", "EPERM", "seccomp"));
}

#[test]
fn threads_without_a_private_table_are_usable_and_it_is_said() {
    let calls = [libc::SYS_unshare, libc::SYS_close_range];
    let (code, report) = doctor(&[], &calls, libc::EPERM);
    let threads = backend(&report, "threads");
    assert_eq!((code, &threads["usable"]), (0, &Value::Bool(true)));
    let table = threads["details"]["private_table"].as_str().unwrap();
    assert!(table.starts_with("no: ") && table.contains("seccomp"), "{table}");
    assert_eq!(threads["details"]["file_passing"], "yes");
}

#[test]
fn nowait_refused_by_a_filter_is_not_taken_for_the_file_system_s_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    // The filter refuses preadv2 with any flags, because it compares only the number of the call.
    // The probe of the threads backend uses preadv2, too.
    let (_, report) = doctor(&[path], &[libc::SYS_preadv2], libc::EPERM);
    let answer = report["path"]["nowait"]["buffered_read"].as_str().unwrap();
    assert!(answer.contains("preadv2: EPERM, a seccomp filter"), "{answer}");
}

#[test]
fn a_path_that_is_not_there_is_a_problem() {
    let (code, report) = doctor(&["/no/such/path"], &[], 0);
    assert_eq!((code, &report["path"]), (1, &Value::Null));
    assert_eq!(report["problems"].as_array().unwrap().len(), 1, "{report:#}");
}

#[test]
fn programs_are_judged_by_what_they_link() {
    let (_, report) = doctor(&["--program", "sh"], &[], 0);
    assert_eq!(report["program"]["helps"], "perhaps", "{report:#}");
    for (program, helps) in [("/usr/bin/fio", "yes"), ("/usr/bin/qemu-img", "yes")] {
        if Path::new(program).exists() {
            let (_, report) = doctor(&[program], &[], 0);
            assert_eq!(report["program"]["helps"], helps, "{report:#}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    libraries(dir.path());
    let mut command = nowait(&["doctor", "--program", "sh"]);
    let (code, out, _) = outcome(command.env("NOWAIT_LIBDIR", dir.path()));
    assert!(code == 0 && out.lines().count() <= 5 && out.contains("nowait may help"), "{out}");
    let (code, report) = doctor(&["--program", "no-such-program-at-all"], &[], 0);
    assert_eq!((code, &report["program"]), (1, &Value::Null));
    let (code, out, err) = outcome(&mut nowait(&["doctor", "--program", "/no/such"]));
    assert!(code == 1 && out.is_empty() && err.lines().count() == 1, "{err}");
    assert!(err.contains("/no/such: no such program or process"), "{err}");
    let own = std::process::id().to_string();
    let (_, report) = doctor(&["--program", &own], &[], 0);
    assert_eq!(report["program"]["process"]["has_nowait"], false, "{report:#}");
}

#[test]
fn a_library_that_does_not_load_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    libraries(dir.path());
    let broken = dir.path().join("libnowait_preload.so");
    std::fs::remove_file(&broken).unwrap();
    std::fs::write(&broken, "not a library").unwrap();
    let mut command = nowait(&["doctor"]);
    let (code, out, _) = outcome(command.env("NOWAIT_LIBDIR", dir.path()));
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("libnowait_preload.so does not load"), "{out}");
    assert!(out.lines().all(|line| line.trim_end() == line), "no trailing blanks");
}

#[test]
fn manual_and_completions_are_printed() {
    let (code, out, _) = outcome(&mut nowait(&["man"]));
    assert!(code == 0 && out.contains(".TH nowait 1"), "{out}");
    let (code, out, _) = outcome(&mut nowait(&["completions", "bash"]));
    assert!(code == 0 && out.contains("complete -F"), "{out}");
    let dir = tempfile::tempdir().unwrap();
    let (code, _, err) = outcome(nowait(&["man"]).arg(dir.path().join("man1")));
    assert_eq!(code, 0, "{err}");
    assert!(dir.path().join("man1/nowait-doctor.1").exists());
}
