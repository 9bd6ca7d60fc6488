//! The program under test, and its outcome.

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Prepares the program under test, with neither variables of nowait nor LD_PRELOAD in its
/// environment.
#[allow(dead_code)]
pub(crate) fn nowait_serve<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-serve"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NOWAIT_") || name == "LD_PRELOAD" {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

#[allow(dead_code)]
pub(crate) fn outcome(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}
