//! `nowait status` and `nowait top` show the programs under nowait.

use std::time::{Duration, Instant};

use nowait_tests::program::{Program, Running};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{self, Backend, Library, Subject};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_mins(1);

fn process(pid: i32, scratch: &Scratch) -> Option<Value> {
    let tool = Program::new(subject::built("bin/nowait")).env("XDG_RUNTIME_DIR", scratch.path());
    let output = tool.args(["status", "--json"]).run();
    let mut report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let processes = report["processes"].as_array_mut().expect("a list");
    let found = processes.iter().position(|process| process["pid"] == pid)?;
    Some(processes.swap_remove(found))
}

/// Starts fio by `nowait run`, for longer than the test takes. `None`: this run does not test the
/// preload library or this backend.
fn fio(backend: Backend, flags: &[&str], scratch: &Scratch) -> Option<Running> {
    let subject = Subject::chosen(Library::Preload, backend)?;
    if subject.is_system() {
        skip::note("the system has no such tool");
        return None;
    }
    let tool = Program::new(subject::built("bin/nowait")).env("XDG_RUNTIME_DIR", scratch.path());
    let tool = tool.args(["run", "--backend", backend.name()]).args(flags);
    let tool = tool.args(["--", "fio", "--name=status", "--ioengine=libaio", "--rw=randrw"]);
    let tool = tool.args(["--iodepth=16", "--size=1m", "--thread", "--time_based"]);
    let folder = format!("--directory={}", scratch.path().display());
    Some(tool.args(["--runtime=600", &folder]).spawn())
}

/// Calls `found` until it returns something. Each call of `found` starts a process, so that fio
/// gets time meanwhile.
fn wait_for<T>(fio: &mut Running, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        assert!(!fio.ended(), "{}", fio.stderr());
        assert!(start.elapsed() < DEADLINE, "never seen\n{}", fio.stderr());
        if let Some(found) = found() {
            return found;
        }
    }
}

#[test]
fn a_running_program_is_listed_with_its_backend_and_the_version_of_its_library() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    for backend in Backend::selected() {
        let scratch = Scratch::new("status");
        let Some(mut fio) = fio(backend, &[], &scratch) else { continue };
        let pid = fio.pid();
        // The report may name another backend, or none, before the first request needs a ring or a
        // native context.
        let is_seen = |process: &Value| match backend {
            Backend::Auto => !process["backend"].is_null(),
            _ => process["backend"] == backend.name(),
        };
        let process = wait_for(&mut fio, || process(pid, &scratch).filter(is_seen));
        assert_eq!((&process["program"], &process["is_replaced"]), (&"fio".into(), &false.into()));
        let version = Program::new(subject::built("bin/nowait")).arg("--version").succeed();
        let version = version.stdout.trim().trim_start_matches("nowait ");
        assert_eq!(process["version"], version, "{process}");
    }
}

#[test]
fn figures_of_a_running_program_are_shown_and_grow() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    let scratch = Scratch::new("stats");
    let Some(mut fio) = fio(Backend::Auto, &["--stats"], &scratch) else { return };
    let pid = fio.pid();
    let requests = |process: &Value| process["report"]["contexts"][0]["requests"].as_u64();
    let look = || process(pid, &scratch).and_then(|process| requests(&process));
    let first = wait_for(&mut fio, || look().filter(|requests| *requests > 0));
    wait_for(&mut fio, || look().filter(|requests| *requests > first));
    let top = Program::new(subject::built("bin/nowait")).env("XDG_RUNTIME_DIR", scratch.path());
    let shown = top.args(["top", "--once"]).succeed();
    let table = shown.stdout.split("SUBMIT P99").nth(1).expect("a table of programs");
    assert!(table.contains(&format!("{pid}  fio ")), "{shown}");
    let file = scratch.file(&format!("nowait/run-{pid}.json"));
    assert!(file.exists());
    // fio exits normally after SIGINT.
    // SAFETY: takes numbers; the process is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    fio.wait(DEADLINE);
    assert!(!file.exists(), "a process that ends takes its file along");
}
