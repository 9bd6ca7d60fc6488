//! fio as the client: its nbd engine, its libaio engine on a file or a device, or blocking calls in
//! a file system.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nowait_harness::error::Result;
use nowait_harness::fio::{self, Parsed};

use super::Work;

/// The resources of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// An export, at a socket.
    Nbd(PathBuf),
    /// A file or a block device.
    File(PathBuf),
    /// A file system.
    Folder(PathBuf),
}

/// One run of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) work: &'a Work,
    pub(crate) size_bytes: u64,
    pub(crate) runtime: Duration,
    pub(crate) seed: u64,
}

/// Has the kernel read the client's program and libraries, which it may have dropped.
pub(crate) fn read_into_memory() {
    // To list its engines, fio opens the files of those that have one.
    let _ = Command::new("fio").arg("--enghelp").output();
}

/// Runs fio on `target` to its end.
pub(crate) fn run(run: &Run<'_>, target: &Target) -> Result<Parsed> {
    let mut command = fio::command(Path::new("fio"));
    command.args(["--name=job", "--time_based", "--norandommap"]);
    command.arg(format!("--rw={}", run.work.rw)).arg(format!("--bs={}", run.work.block_bytes));
    command.arg(format!("--randseed={}", run.seed));
    command.arg(format!("--runtime={}ms", run.runtime.as_millis()));
    match target {
        Target::Nbd(socket) => {
            command.args(["--ioengine=nbd", "--iodepth=32"]);
            command.arg(format!("--size={}", run.size_bytes));
            command.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()));
        }
        Target::File(path) => {
            command.args(["--ioengine=libaio", "--direct=1", "--iodepth=32"]);
            command.arg(format!("--size={}", run.size_bytes));
            command.arg(format!("--filename={}", path.display()));
        }
        Target::Folder(folder) => {
            command.args(["--ioengine=psync", "--numjobs=4", "--group_reporting"]);
            // Four files that leave room for what the file system needs itself.
            command.arg(format!("--size={}", (run.size_bytes / 5) & !0xf_ffff));
            command.arg(format!("--directory={}", folder.display()));
        }
    }
    Ok(fio::run_one(&mut command, run.runtime)?.0)
}
