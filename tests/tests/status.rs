//! `nowait status` sees what runs under nowait.

use std::time::{Duration, Instant};

use nowait_tests::program::Program;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{self, Backend, Library, Subject};
use serde_json::Value;

/// How long a program may take until it has begun its requests.
const DEADLINE: Duration = Duration::from_mins(1);

fn process(pid: i32) -> Option<Value> {
    let output = Program::new(subject::built("bin/nowait")).args(["status", "--json"]).run();
    let mut report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let processes = report["processes"].as_array_mut().expect("a list");
    let found = processes.iter().position(|process| process["pid"] == pid)?;
    Some(processes.swap_remove(found))
}

#[test]
fn a_running_program_is_listed_with_its_backend_and_the_version_of_its_library() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    for backend in Backend::selected() {
        let Some(subject) = Subject::chosen(Library::Preload, backend) else { continue };
        if subject.is_system() {
            return skip::note("the system has no such tool");
        }
        let scratch = Scratch::new("status");
        let tool = Program::new(subject::built("bin/nowait"));
        let tool = tool.args(["run", "--backend", backend.name(), "--", "fio", "--name=status"]);
        let tool = tool.args(["--ioengine=libaio", "--rw=randrw", "--iodepth=16", "--size=1m"]);
        let tool = tool.args(["--thread", "--time_based", "--runtime=600"]);
        let mut fio = tool.arg(format!("--directory={}", scratch.path().display())).spawn();
        let start = Instant::now();
        // Each look is a process: the program goes on meanwhile.
        let process = loop {
            assert!(!fio.ended(), "{}", fio.stderr());
            assert!(start.elapsed() < DEADLINE, "never listed with a backend\n{}", fio.stderr());
            match process(fio.pid()) {
                Some(process) if !process["backend"].is_null() => break process,
                _ => {}
            }
        };
        if backend != Backend::Auto {
            assert_eq!(process["backend"], backend.name());
        }
        assert_eq!((&process["program"], &process["is_replaced"]), (&"fio".into(), &false.into()));
        let version = Program::new(subject::built("bin/nowait")).arg("--version").succeed();
        let version = version.stdout.trim().trim_start_matches("nowait ");
        assert_eq!(process["version"], version, "{process}");
    }
}
