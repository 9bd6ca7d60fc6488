//! Runs other programs: cargo, the C compiler, readelf.

use std::env;
use std::io::{BufRead, BufReader, pipe};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why something failed, for a person to read.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// Returns the folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the workspace").to_path_buf()
}

/// Returns the folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Prepares `program` to run in the workspace.
///
/// The variables that `cargo run` set for this program are taken away: a build below must not
/// depend on its caller.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// Runs a command, hands each line of its output (both streams, in order) to `line`.
///
/// # Errors
/// The command could not be started, or did not exit with 0.
pub(crate) fn stream(mut command: Command, mut line: impl FnMut(&str)) -> Result {
    let name = describe(&command);
    let (reader, writer) = pipe().map_err(|error| format!("pipe: {error}"))?;
    let clone = writer.try_clone().map_err(|error| format!("pipe: {error}"))?;
    command.stdout(writer).stderr(clone);
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    drop(command); // closes our copies of the writing end: the end of the child ends the loop
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).map_err(|error| format!("{name}: {error}"))? > 0 {
        line(String::from_utf8_lossy(&bytes).trim_end_matches('\n'));
        bytes.clear();
    }
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// Runs a command and returns what it wrote to its standard output.
///
/// # Errors
/// As for [`stream`]; what it wrote to its standard error is in the message.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let name = describe(&command);
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}\n{}", output.status, stderr.trim_end()))
}

fn describe(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    let words: Vec<_> =
        std::iter::once(command.get_program().to_string_lossy()).chain(args).take(6).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_arrive_and_the_exit_code_counts() {
        let mut lines = Vec::new();
        let script = "echo one; echo two >&2; exit 3";
        let result = stream(command("sh", &["-c", script]), |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["one", "two"]);
        assert!(result.is_err_and(|message| message.contains("exit status: 3")));
    }

    #[test]
    fn output_shows_the_error_of_the_program() {
        let result = output(command("sh", &["-c", "echo why >&2; false"]));
        assert!(result.is_err_and(|message| message.contains("why")));
    }
}
