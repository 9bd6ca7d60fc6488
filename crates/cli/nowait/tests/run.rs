//! `nowait run` executes the program, with the environment that its flags set.

mod support;

use nowait_block::skip::note_skip_here;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{KAIO, URING, libraries, nowait, outcome, refuse};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
}

impl Place {
    fn new(script: &str) -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        libraries(place.dir.path());
        let path = place.script();
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn script(&self) -> PathBuf {
        self.path().join("program")
    }

    fn run(&self, flags: &[&str], args: &[&str]) -> (i32, String, String) {
        let mut command = nowait(&["run"]);
        command.args(flags).arg("--").arg(self.script()).args(args);
        outcome(command.env("NOWAIT_LIBDIR", self.path()))
    }
}

#[test]
fn the_program_gets_its_arguments_and_gives_its_exit_code() {
    let place = Place::new("#!/bin/sh\necho \"$LD_PRELOAD|$1|$2\"\nexit 42\n");
    let (code, out, err) = place.run(&[], &["--backend", "a b"]);
    let library = place.path().join("libnowait_preload.so");
    assert_eq!((code, err.as_str()), (42, ""));
    assert_eq!(out.trim(), format!("{}|--backend|a b", library.display()));
}

#[test]
fn flags_become_the_variables_of_the_contract() {
    let place = Place::new("#!/bin/sh\nenv | grep ^NOWAIT_ | grep -v LIBDIR | sort\n");
    let flags = ["--backend", "threads", "--cache", "host", "--submit", "offload"];
    let more = ["--workers", "3", "--log", "debug", "--report=r.json"];
    let (code, out, err) = place.run(&[&flags[..], &more[..]].concat(), &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    let report = std::env::current_dir().unwrap().join("r.json");
    let expected = format!(
        "NOWAIT_BACKEND=threads\nNOWAIT_CACHE=host\nNOWAIT_LOG=debug\n\
         NOWAIT_REPORT={}\nNOWAIT_SUBMIT=offload\nNOWAIT_WORKERS=3\n",
        report.display()
    );
    assert_eq!(out, expected);
}

/// systemd starts services with SIGPIPE ignored: a write to a closed connection fails with EPIPE.
#[test]
fn the_program_ignores_sigpipe_if_nowait_was_started_so() {
    const BIT: u64 = 1 << (libc::SIGPIPE - 1);
    let place = Place::new("#!/bin/sh\n");
    for (trap, expected) in [("trap '' PIPE", BIT), ("trap - PIPE", 0)] {
        let script = format!("{trap}; exec \"$0\" run -- grep SigIgn /proc/self/status");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_nowait"));
        let (code, out, err) = outcome(shell.env("NOWAIT_LIBDIR", place.path()));
        assert_eq!((code, err.as_str()), (0, ""));
        let mask = out.split_whitespace().nth(1).expect("a mask");
        let mask = u64::from_str_radix(mask, 16).expect("a number");
        assert_eq!(mask & BIT, expected, "{trap}: {out}");
    }
}

#[test]
fn what_was_preloaded_stays_behind_ours() {
    let place = Place::new("#!/bin/sh\necho \"$LD_PRELOAD\"\n");
    let other = place.path().join("libaio.so.1");
    let mut command = nowait(&["run"]);
    command.arg(place.script()).env("NOWAIT_LIBDIR", place.path()).env("LD_PRELOAD", &other);
    let (_, out, _) = outcome(&mut command);
    let ours = place.path().join("libnowait_preload.so");
    assert_eq!(out.trim(), format!("{}:{}", ours.display(), other.display()));
}

#[test]
fn libaio_comes_by_the_library_path() {
    let place = Place::new("#!/bin/sh\necho \"$LD_LIBRARY_PATH|$LD_PRELOAD\"\n");
    let mut command = nowait(&["run", "--via", "libaio"]);
    command.arg(place.script()).env("NOWAIT_LIBDIR", place.path());
    let (_, out, _) = outcome(command.env("LD_LIBRARY_PATH", "/x"));
    assert_eq!(out.trim(), format!("{}:/x|", place.path().display()));
}

#[test]
fn a_program_that_cannot_be_executed_is_told_apart_as_in_a_shell() {
    let place = Place::new("#!/bin/sh\n");
    let run = |program: &str| {
        let mut command = nowait(&["run", "--", program]);
        outcome(command.env("NOWAIT_LIBDIR", place.path()))
    };
    let (code, _, err) = run("no-such-program-at-all");
    assert_eq!((code, err.as_str()), (127, "nowait: no-such-program-at-all: not found\n"));
    let (code, _, err) = run(&place.path().display().to_string());
    assert_eq!((code, err.lines().count()), (126, 1), "{err}");
    std::fs::write(place.script(), "#!/no/interpreter\n").unwrap();
    let (code, _, err) = run(&place.script().display().to_string());
    assert_eq!(code, 127, "{err}");
    assert!(err.contains("its interpreter or loader does not exist"), "{err}");
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    let cases: &[&[&str]] = &[
        &["run"],
        &["run", "--backend", "fast", "--", "true"],
        &["run", "--cache", "mine", "--", "true"],
        &["run", "--workers", "0", "--", "true"],
        &["doctor", "--yaml"],
        &["wat"],
    ];
    for case in cases {
        let (code, out, err) = outcome(&mut nowait(case));
        assert_eq!((code, out.as_str(), err.lines().count()), (2, "", 1), "{case:?}: {err}");
        assert!(err.starts_with("nowait: "), "{case:?}: {err}");
    }
}

#[test]
fn the_flags_of_the_removed_page_cache_are_answered_in_one_line() {
    let place = Place::new("#!/bin/sh\necho ran\n");
    for (flags, named) in [
        (&["--cache", "user"][..], "--cache user"),
        (&["--cache", "user", "--cache-size", "1G"], "--cache user"),
        (&["--cache=user", "--via", "libaio"], "--cache user"),
        (&["--cache-size", "1G"], "--cache-size"),
    ] {
        let (code, out, err) = place.run(flags, &[]);
        assert_eq!((code, out.as_str(), err.lines().count()), (2, "", 1), "{flags:?}: {err}");
        assert!(err.starts_with(&format!("nowait: {named}: the page cache ")), "{err}");
        assert!(err.contains("was removed") && err.contains("nowait serve"), "{err}");
    }
    let help = outcome(&mut nowait(&["run", "--help"])).1;
    assert!(!help.contains("--cache"), "{help}");
}

#[test]
fn the_removed_submit_mode_is_answered_in_one_line() {
    let place = Place::new("#!/bin/sh\necho ran\n");
    let (code, out, err) = place.run(&["--submit", "inline"], &[]);
    assert_eq!((code, out.as_str(), err.lines().count()), (2, "", 1), "{err}");
    assert!(err.starts_with("nowait: --submit inline: the submit mode "), "{err}");
    let help = outcome(&mut nowait(&["run", "--help"])).1;
    assert!(help.contains("--submit") && !help.contains("inline"), "{help}");
}

#[test]
fn a_missing_library_is_one_line_and_exit_code_1() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = nowait(&["run", "--", "true"]);
    let (code, _, err) = outcome(command.env("NOWAIT_LIBDIR", empty.path()));
    assert_eq!((code, err.lines().count()), (1, 1), "{err}");
    assert!(err.contains("libnowait_preload.so is not in"), "{err}");
}

#[test]
fn a_backend_asked_for_by_name_must_be_usable() {
    let place = Place::new("#!/bin/sh\necho ran\n");
    let run = |backend: &str| {
        let mut command = nowait(&["run", "--backend", backend, "--"]);
        command.arg(place.script()).env("NOWAIT_LIBDIR", place.path());
        refuse(&mut command, &[URING, KAIO].concat(), libc::EPERM);
        outcome(&mut command)
    };
    let (code, out, err) = run("uring");
    assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 1), "{err}");
    assert!(err.contains("io_uring_setup: EPERM, a seccomp filter"), "{err}");
    for backend in ["auto", "threads"] {
        assert_eq!(run(backend), (0, "ran\n".to_owned(), String::new()));
    }
}

#[test]
fn a_set_user_id_program_is_warned_about_and_run_all_the_same() {
    let place = Place::new("");
    std::fs::copy("/bin/true", place.script()).unwrap();
    let mode = std::fs::Permissions::from_mode(0o4755);
    if std::os::unix::fs::chown(place.script(), Some(12_345), None).is_err() {
        return note_skip_here("needs root");
    }
    std::fs::set_permissions(place.script(), mode).unwrap();
    let (code, _, err) = place.run(&[], &[]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("warning") && err.contains("set-user-id"), "{err}");
}
