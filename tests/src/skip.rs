//! Records a test as skipped if the machine lacks a requirement of the test: the test must not pass
//! silently.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// The reason why a test cannot run here.
#[derive(Debug)]
pub struct Skip(pub String);

/// Returns the value, or records the skip under the name of the running test.
pub fn unless<T>(needed: Result<T, Skip>) -> Option<T> {
    match needed {
        Ok(value) => Some(value),
        Err(Skip(why)) => {
            note(&why);
            None
        }
    }
}

/// Prints `skipped: <test>: <why>`, and appends the line to the file `$NOWAIT_SKIPS` if that
/// variable is set.
pub fn note(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("unnamed"));
    // `write_all` on stderr bypasses the test harness, which hides `eprintln!` of passing tests.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let Ok(file) = std::env::var("NOWAIT_SKIPS") else { return };
    let mut file = OpenOptions::new().create(true).append(true).open(&file).expect(&file);
    file.write_all(line.as_bytes()).expect("NOWAIT_SKIPS is writable");
}

/// Returns a skip if one of `programs` is not installed. The reason names the first missing
/// program.
pub fn missing_program(programs: &[&str]) -> Result<(), Skip> {
    match programs.iter().find(|program| !installed(program)) {
        Some(program) => Err(Skip(format!("{program} is not installed"))),
        None => Ok(()),
    }
}

/// Returns a skip unless the test runs as root: mounts, loop devices and other users' credentials
/// need root.
pub fn missing_root() -> Result<(), Skip> {
    // SAFETY: geteuid takes no arguments and cannot fail.
    let uid = unsafe { libc::geteuid() };
    if uid == 0 { Ok(()) } else { Err(Skip("needs root".to_owned())) }
}

fn installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    // Services and mkfs are in sbin, which some users do not have in PATH.
    path.split(':')
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"])
        .any(|folder| Path::new(folder).join(program).exists())
}
