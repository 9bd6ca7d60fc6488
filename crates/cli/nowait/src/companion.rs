//! The programs that carry out `nowait serve`, `image` and `bench`. `nowait` looks for them in its
//! own folder, then in PATH.

use crate::program;
use nowait_terminal::{Description, Failure, Result};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Companion(&'static str);

const SERVE: Companion = Companion("nowait-serve");
const BENCH: Companion = Companion("nowait-bench");

pub(crate) const ALL: [Companion; 2] = [SERVE, BENCH];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job {
    companion: Companion,
    command: &'static str,
    words: Vec<OsString>,
}

impl Companion {
    fn of(command: &OsStr) -> Option<(Companion, &'static str)> {
        match command.to_str()? {
            "serve" => Some((SERVE, "serve")),
            "image" => Some((SERVE, "image")),
            "bench" => Some((BENCH, "bench")),
            _ => None,
        }
    }

    pub(crate) fn has_page(page: &str) -> bool {
        let command = page.split('-').nth(1);
        command.is_some_and(|command| Companion::of(command.as_ref()).is_some())
    }

    fn find(self) -> Option<PathBuf> {
        let own = std::env::current_exe().ok();
        let beside = own.as_deref().and_then(Path::parent).map(|folder| folder.join(self.0));
        beside
            .filter(|path| program::is_executable(path))
            .or_else(|| program::find(self.0.as_ref()))
    }

    /// Returns an empty list if the companion is not installed or does not describe its commands.
    pub(crate) fn commands(self) -> Vec<Description> {
        let asked = self.find().map(|path| {
            let mut ask = Command::new(path);
            ask.arg("describe").stdin(Stdio::null()).stderr(Stdio::null()).output()
        });
        let answer = asked.and_then(std::result::Result::ok);
        answer.and_then(|answer| Description::read(&answer.stdout)).unwrap_or_default()
    }

    /// Makes the companion write its manual pages into `folder`, if the companion is installed.
    pub(crate) fn write_pages(self, folder: &Path) -> Result<ExitCode> {
        let Some(path) = self.find() else { return Ok(ExitCode::SUCCESS) };
        let ended = Command::new(&path).arg("man").arg(folder).status();
        match ended {
            Ok(status) if status.success() => Ok(ExitCode::SUCCESS),
            Ok(status) => Err(Failure::new(format!("{} man: {status}", path.display()))),
            Err(error) => Err(Failure::new(format!("{}: {error}", path.display()))),
        }
    }
}

/// Returns `None` if `nowait` itself carries out the command in `words`.
pub(crate) fn job(words: &[OsString]) -> Option<Job> {
    let (is_help, at) = match words.first()?.to_str() {
        Some("help") => (true, 1),
        _ => (false, 0),
    };
    let (companion, command) = Companion::of(words.get(at)?)?;
    let help = is_help.then(|| OsString::from("help"));
    // `nowait-bench` expects no `bench` before its arguments.
    let name = (companion == SERVE).then(|| OsString::from(command));
    let rest = words[at + 1..].iter().cloned();
    Some(Job { companion, command, words: help.into_iter().chain(name).chain(rest).collect() })
}

impl Job {
    /// Returns only if the companion cannot be executed: `exec` replaces this process.
    pub(crate) fn run(self) -> Failure {
        let Job { companion: Companion(name), command, words } = self;
        let Some(path) = Companion(name).find() else {
            return Failure::new(format!(
                "{command}: the program {name} is not installed (install the package {name})"
            ));
        };
        let error = Command::new(&path).args(words).exec();
        let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
        Failure::new(format!("{}: {error}", path.display())).with_code(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn commands_of_companions_are_handed_over_word_for_word() {
        let table = [
            ("serve disk.img --nbd unix:/s", Some((SERVE, "serve disk.img --nbd unix:/s"))),
            ("serve -- --help", Some((SERVE, "serve -- --help"))),
            ("image", Some((SERVE, "image"))),
            ("bench submit --quick", Some((BENCH, "submit --quick"))),
            ("bench", Some((BENCH, ""))),
            ("help serve", Some((SERVE, "help serve"))),
            ("help image create", Some((SERVE, "help image create"))),
            ("help bench submit", Some((BENCH, "help submit"))),
            ("help", None),
            ("help run", None),
            ("run -- serve", None),
            ("-h serve", None),
            ("", None),
        ];
        for (line, expected) in table {
            let found = job(&words(line)).map(|it| (it.companion, it.words));
            assert_eq!(found, expected.map(|(companion, line)| (companion, words(line))), "{line}");
        }
    }

    #[test]
    fn pages_are_written_by_the_program_that_has_the_command() {
        for page in ["nowait-serve", "nowait-image-create", "nowait-bench", "nowait-bench-serve"] {
            assert!(Companion::has_page(page), "{page}");
        }
        for page in ["nowait", "nowait-run", "nowait-enable", "nowait-man"] {
            assert!(!Companion::has_page(page), "{page}");
        }
    }
}
