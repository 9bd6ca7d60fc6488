//! The commands of servers of images, and fio as their client.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nowait_harness::error::Result;
use nowait_harness::fio::{self, Parsed};
use nowait_harness::{launch, server};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Nbd(String),
    File(PathBuf),
}

impl Target {
    /// The requests bypass the client's page cache.
    pub(crate) fn ask(&self, job: &str, size_bytes: u64, runtime: Duration) -> Result<Parsed> {
        let mut command = fio::command(Path::new("fio"));
        command.arg("--name=job").args(job.split_whitespace()).arg(format!("--size={size_bytes}"));
        match self {
            Self::Nbd(uri) => command.arg("--ioengine=nbd").arg(format!("--uri={uri}")),
            Self::File(path) => command
                .args(["--ioengine=libaio", "--direct=1"])
                .arg(format!("--filename={}", path.display())),
        };
        Ok(fio::run_one(&mut command, runtime)?.0)
    }
}

pub(crate) fn uri(socket: &Path, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", socket.display())
}

/// Replaces `{name}` in `words` by the value of that name.
pub(crate) fn command(words: &[String], values: &[(&str, String)]) -> Command {
    let fill = |word: &String| {
        let fill = |word: String, (name, value): &(&str, String)| {
            word.replace(&format!("{{{name}}}"), value)
        };
        values.iter().fold(word.clone(), fill)
    };
    let mut words = words.iter().map(fill);
    let mut command = Command::new(program(&words.next().unwrap_or_default()));
    launch::inherit_nothing_of_ours(&mut command);
    command.args(words);
    command
}

pub(crate) fn program(name: &str) -> PathBuf {
    if name == "nowait-serve" { server::nowait_serve() } else { PathBuf::from(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_filled_in() {
        let words = ["{zerofs}", "--size={size}k", "vm={folder}/{image}"].map(str::to_owned);
        let values = [("zerofs", "/z"), ("size", "8"), ("folder", "/f"), ("image", "one")];
        let command = command(&words, &values.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(command.get_program(), "/z");
        assert!(command.get_args().eq(["--size=8k", "vm=/f/one"]));
    }
}
