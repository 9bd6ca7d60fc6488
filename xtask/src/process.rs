//! Runs other programs: cargo, the C compiler, readelf.

use std::env;
use std::io::{BufRead, BufReader, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use xshell::Shell;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

pub(crate) fn shell() -> Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(root());
    Ok(sh)
}

pub(crate) fn run(command: impl Into<Command>) -> Result<()> {
    let mut command = command.into();
    let status = command.status().with_context(|| describe(&command))?;
    ensure!(status.success(), "{}: {status}", describe(&command));
    Ok(())
}

pub(crate) fn stream(command: impl Into<Command>, line: impl FnMut(&str)) -> Result<()> {
    let command = command.into();
    let name = describe(&command);
    let status = watch(command, line)?;
    ensure!(status.success(), "{name}: {status}");
    Ok(())
}

pub(crate) fn watch(mut command: Command, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
    let (reader, writer) = pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| describe(&command))?;
    drop(command); // closes our copies of the writing end: the end of the child ends the loop
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes)? > 0 {
        line(String::from_utf8_lossy(&bytes).trim_end_matches('\n'));
        bytes.clear();
    }
    Ok(child.wait()?)
}

pub(crate) fn output(command: impl Into<Command>) -> Result<String> {
    let mut command = command.into();
    let output = command.stdin(Stdio::null()).output().with_context(|| describe(&command))?;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    if !output.status.success() {
        bail!("{}: {}\n{stdout}{}", describe(&command), output.status, stderr.trim_end());
    }
    Ok(stdout.into_owned())
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args()).take(6);
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use xshell::cmd;

    #[test]
    fn both_streams_arrive_and_a_failure_says_why() {
        let (sh, mut lines) = (shell().unwrap(), Vec::new());
        let script = "echo one; echo two >&2; exit 3";
        let result = stream(cmd!(sh, "sh -c {script}"), |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["one", "two"]);
        assert!(result.is_err_and(|error| error.to_string().contains("exit status: 3")));
        let result = output(cmd!(sh, "sh -c {script}"));
        assert!(result.is_err_and(|error| error.to_string().contains("one\ntwo")));
    }
}
