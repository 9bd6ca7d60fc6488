//! One run of a program: its files, its preloads, its filter.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cases::{Job, Load};
use super::need;
use super::qemu;
use super::timer::Timer;
use crate::error::{BenchError, Result};
use crate::launch;
use crate::layout::TestFile;
use crate::metric::Sample;
use crate::seccomp;

/// What all runs use.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) preload: PathBuf,
    /// `None`: there is no compiler.
    pub(crate) timer: Option<Timer>,
    /// A folder on the disk under test.
    pub(crate) folder: PathBuf,
    /// Drop the page cache of the whole machine before a run, not only the pages of the file.
    pub(crate) drop_caches: bool,
}

/// One run to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) job: &'a Job,
    pub(crate) file: &'a TestFile,
    pub(crate) size_bytes: u64,
    pub(crate) runtime: Duration,
    /// The same for all subjects of a round: they visit the same blocks.
    pub(crate) seed: u64,
}

impl Run<'_> {
    /// Makes the run.
    ///
    /// # Errors
    /// A program cannot be started, fails, or says something that is not understood.
    pub(crate) fn make(&self) -> Result<Sample> {
        match self.job.load {
            Load::Qemu { rw, block_bytes } => qemu::run(self, rw, block_bytes),
        }
    }

    /// Begins the command of the program under test: with its preloads and its filter.
    ///
    /// # Errors
    /// The program is not there, or its times cannot be counted.
    pub(crate) fn command(&self, program: &str) -> Result<Command> {
        let mut command = plain(program)?;
        let (way, timer) = (self.job.way, self.tools.timer.as_ref());
        let ours = way.preloads.then_some(self.tools.preload.as_path());
        let preloads: Vec<String> = timer
            .map(|timer| timer.library.as_path())
            .into_iter()
            .chain(ours)
            .map(|path| path.display().to_string())
            .collect();
        if !preloads.is_empty() {
            command.env("LD_PRELOAD", preloads.join(":"));
        }
        if let Some(timer) = timer {
            timer.begin(&mut command)?;
        }
        if way.forbids_uring {
            seccomp::forbid_uring(&mut command);
        }
        Ok(command)
    }
}

/// Begins the command of another program.
///
/// # Errors
/// It is not there.
pub(crate) fn plain(program: &str) -> Result<Command> {
    let path = need::program(program);
    let path = path.ok_or_else(|| BenchError::failed(format!("{program} is not installed")))?;
    let mut command = Command::new(path);
    launch::inherit_nothing_of_ours(&mut command);
    Ok(command)
}

/// Returns the first line of a text that says anything.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("and said nothing")
}

/// Prints a path for a command line.
pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
