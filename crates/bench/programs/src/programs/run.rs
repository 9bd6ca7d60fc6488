//! One run of a program: its files, its preloads, its filter.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::mariadb;
use super::need;
use super::nginx;
use super::python::{self, Packages};
use super::qemu;
use super::sysbench;
use super::thin;
use super::timer::Timer;
use super::{Load, Way};
use crate::kv::tier;
use nowait_harness::error::{Failure, Result};
use nowait_harness::launch;
use nowait_harness::layout::TestFile;
use nowait_harness::metric::Sample;
use nowait_harness::seccomp;
use nowait_harness::suite::Session;

#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) preload: PathBuf,
    /// `None`: no case needs the timer, or the compiler failed.
    pub(crate) timer: Option<Timer>,
    pub(crate) folder: PathBuf,
    /// The folder that the command line names; `folder` is in it.
    pub(crate) asked: PathBuf,
    /// A folder on the same disk for files that take long to write. With `--keep` these files stay.
    pub(crate) kept: PathBuf,
    /// Drop the page cache of the whole machine before a run, not only the pages of the file.
    pub(crate) drop_caches: bool,
    pub(crate) packages: Packages,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) way: &'a Way,
    pub(crate) data: &'a TestFile,
    /// A file that each run of some cases makes anew.
    pub(crate) fresh: &'a TestFile,
    pub(crate) size_bytes: u64,
    pub(crate) runtime: Duration,
    /// Seed of the order of blocks; the same for all subjects of a round.
    pub(crate) seed: u64,
}

impl Run<'_> {
    pub(super) fn make(&self, load: &Load) -> Result<Sample> {
        match load {
            Load::Qemu { rw, block_bytes } => qemu::run(self, rw, *block_bytes),
            Load::Caio { block_bytes } => python::caio(self, *block_bytes),
            Load::Nixl { direction, block_bytes, count } => {
                python::nixl(self, direction, *block_bytes, *count)
            }
            Load::Tier(tier) => tier.run(self),
            Load::Mariadb { flush, threads } => mariadb::run(self, flush, *threads),
            Load::SysbenchFiles { direct } => sysbench::fileio(self, *direct),
            Load::Nginx {} => nginx::run(self),
            Load::Thin {} => thin::run(self),
        }
    }

    pub(crate) fn command(&self, program: &Path) -> Command {
        self.preloading(program, &[])
    }

    /// Like [`Run::command`], for a program that does not report the time of `io_submit`: a
    /// preloaded library measures this time, if `Tools::timer` is set.
    pub(crate) fn timed(&self, program: &str) -> Result<Command> {
        let program = find(program)?;
        let Some(timer) = &self.tools.timer else { return Ok(self.command(&program)) };
        let mut command = self.preloading(&program, &[&timer.library]);
        timer.begin(&mut command)?;
        Ok(command)
    }

    fn preloading(&self, program: &Path, first: &[&Path]) -> Command {
        let mut command = Command::new(program);
        launch::inherit_nothing_of_ours(&mut command);
        let ours = self.way.preloads.then_some(self.tools.preload.as_path());
        let libraries: Vec<String> = first.iter().copied().chain(ours).map(text).collect();
        if !libraries.is_empty() {
            command.env("LD_PRELOAD", libraries.join(":"));
        }
        if self.way.forbids_uring {
            seccomp::forbid_uring(&mut command);
        }
        command
    }
}

pub(super) fn prepare(
    load: &Load,
    tools: &Tools,
    data: &TestFile,
    session: &Session,
) -> Result<()> {
    let size_bytes = session.extent.size_bytes;
    match load {
        Load::Qemu { .. } => Ok(()),
        Load::Caio { .. } | Load::Nixl { .. } | Load::Nginx {} => session.lay_out(data),
        Load::Tier(_) => tier::begin(&tools.folder),
        Load::Mariadb { .. } => mariadb::prepare(tools, size_bytes),
        Load::SysbenchFiles { .. } => sysbench::prepare_files(tools, size_bytes),
        Load::Thin {} => thin::prepare(tools, size_bytes),
    }
}

/// The command gets neither nowait's library nor the filter of the way.
pub(crate) fn plain(program: &str) -> Result<Command> {
    let mut command = Command::new(find(program)?);
    launch::inherit_nothing_of_ours(&mut command);
    Ok(command)
}

fn find(program: &str) -> Result<PathBuf> {
    let path = need::program(program);
    path.ok_or_else(|| Failure::new(format!("{program} is not installed")))
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
