//! `nowait run` puts an unmodified program under nowait; `nowait doctor` reports what works.

use nowait_tests::fio::Job;
use nowait_tests::program::{Output, Program};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{self, Backend, Library, Subject};

const SECCOMP_RUN: &str = env!("CARGO_BIN_EXE_seccomp-run");

fn tool() -> Option<Program> {
    if Subject::chosen(Library::Preload, Backend::Auto)?.is_system() {
        skip::note("the system has no such tool");
        return None;
    }
    Some(Program::new(subject::built("bin/nowait")))
}

#[test]
fn run_serves_a_program_by_each_backend() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    for backend in Backend::selected() {
        let Some(tool) = tool() else { return };
        let scratch = Scratch::new("run");
        let report = scratch.file("report.json");
        let tool = tool.args(["run", "--backend", backend.name()]);
        let tool = tool.arg(format!("--report={}", report.display())).args(["--", "fio"]);
        // The tool sets NOWAIT_REPORT for fio; the test only reads the file.
        let mut output = Job::BASIC.arguments(tool, scratch.path()).succeed();
        output.reports = nowait_tests::report::take(&report);
        let subject = Subject::chosen(Library::Preload, backend).expect("chosen before");
        subject.assert_served(&output);
    }
}

/// nowait drops messages that it cannot write, and exits with the usual code of the failure.
#[test]
fn a_standard_error_that_is_full_changes_no_exit_code() {
    let Some(_) = tool() else { return };
    let built = subject::built("bin/nowait");
    for (args, code) in [
        ("run --backend nonsense -- true", 2),
        ("nonsense", 2),
        ("run -- /nope/program", 127),
        ("serve /nope/image --nbd unix:/nope/socket", 1),
    ] {
        let line = format!("'{}' {args} 2> /dev/full", built.display());
        let output = Program::new("sh").args(["-c", &line]).run();
        assert_eq!(output.status.code(), Some(code), "{args}: {output}");
    }
}

/// The library writes its report to a pipe without a reader, in a program whose SIGPIPE has its
/// default action.
#[test]
fn a_standard_error_without_a_reader_ends_no_program() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    let Some(_) = tool() else { return };
    let scratch = Scratch::new("report");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = std::process::Command::new(subject::built("bin/nowait"));
    command.args(["run", "--report", "--", "fio", "--name=read", "--ioengine=libaio"]);
    command.args(["--rw=read", "--size=64k", "--output=fio"]).current_dir(scratch.path());
    let status = command.stderr(writer).status().expect("the tool starts");
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn run_passes_the_exit_code_on() {
    for (program, code) in [("true", 0), ("false", 1)] {
        let Some(tool) = tool() else { return };
        let output = tool.args(["run", "--", program]).run();
        assert_eq!(output.status.code(), Some(code), "{output}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for wrong in [&["run", "--backend", "none", "--", "true"][..], &["no-such-command"]] {
        let Some(tool) = tool() else { return };
        let output = tool.args(wrong).run();
        assert_eq!(output.status.code(), Some(2), "{output}");
    }
}

/// A terminal of 40 lines and 100 columns shows all of `-h`; `--help` may be longer.
#[test]
fn the_short_help_of_each_command_fits_a_screen() {
    let commands =
        ["run", "enable", "disable", "status", "doctor", "top", "serve", "image", "bench"];
    let images = ["create", "info", "check", "import", "export", "repair", "rm"];
    let measurements = [
        "submit", "posix", "parity", "cached", "vector", "serve", "remote", "programs", "kv",
        "compare", "demo",
    ];
    let alone = commands.map(|command| vec![command]);
    let images = images.map(|command| vec!["image", command]);
    let measurements = measurements.map(|command| vec!["bench", command]);
    for command in alone.iter().chain(&images).chain(&measurements) {
        let Some(tool) = tool() else { return };
        let help = tool.args(command).arg("-h").succeed().stdout;
        let widest = help.lines().map(|line| line.chars().count()).max();
        let (lines, widest) = (help.lines().count(), widest.unwrap_or_default());
        assert!(lines <= 40 && widest <= 100, "{command:?}: {lines} × {widest}\n{help}");
    }
}

#[test]
fn doctor_explains_what_a_container_forbids() {
    for (profile, reason, left) in [("docker", "EPERM", "kaio"), ("bare", "ENOSYS", "threads")] {
        if tool().is_none() {
            return;
        }
        let doctor = |json: bool| -> Output {
            let program = Program::new(SECCOMP_RUN).args(["--profile", profile, "--"]);
            let program = program.arg(subject::built("bin/nowait")).arg("doctor");
            if json { program.arg("--json").succeed() } else { program.succeed() }
        };
        let text = doctor(false);
        assert!(text.stdout.contains(reason) && text.stdout.contains(left), "{text}");
        let json = doctor(true);
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&json.stdout);
        assert!(parsed.is_ok_and(|value| value.is_object()), "{json}");
        assert!(json.stdout.contains(reason), "{json}");
    }
}
