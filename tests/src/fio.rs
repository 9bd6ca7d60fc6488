//! Jobs of fio with its stock engines; fio verifies the data that it wrote.

use std::path::Path;

use crate::program::Program;

/// The way to open the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Through the page cache.
    Buffered,
    /// `O_DIRECT`.
    Direct,
    /// Buffered, `O_SYNC`.
    Sync,
}

/// A job that verifies its data.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// fio's `ioengine`: `libaio` or `posixaio`.
    pub engine: &'static str,
    /// fio's `rw`: `write`, `randwrite`, `randrw`.
    pub pattern: &'static str,
    /// The way to open the files.
    pub mode: Mode,
    /// fio's `bs`.
    pub block: &'static str,
    /// Requests in flight.
    pub depth: u32,
    /// Jobs, each with its own file.
    pub jobs: u32,
    /// fio reads completions from the user-mapped ring.
    pub userspace_reap: bool,
    /// fio runs its jobs in threads, not in processes.
    pub threads: bool,
}

impl Job {
    /// A job with random reads and writes, from which tests derive other jobs.
    pub const BASIC: Self = Self {
        engine: "libaio",
        pattern: "randrw",
        mode: Mode::Buffered,
        block: "4k",
        depth: 32,
        jobs: 1,
        userspace_reap: false,
        threads: true,
    };

    /// Returns the size of each job's file. It is small with O_SYNC, because each write then waits
    /// for the device.
    fn size(self) -> &'static str {
        match (self.mode, self.jobs) {
            (Mode::Sync, _) => "512k",
            (_, 1) => "8m",
            _ => "2m",
        }
    }

    /// Adds the job's arguments to `fio`.
    pub fn arguments(self, fio: Program, folder: &Path) -> Program {
        let flag = |name: &str, value: bool| format!("--{name}={}", u8::from(value));
        let fio = fio
            .dir(folder)
            .args(["--name=verify", "--output-format=terse"])
            .arg(format!("--ioengine={}", self.engine))
            .args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fallocate=none"])
            .args(["--group_reporting", "--allow_file_create=1", "--verify_state_save=0"])
            .arg(format!("--directory={}", folder.display()))
            .arg(format!("--rw={}", self.pattern))
            .arg(format!("--bs={}", self.block))
            .arg(format!("--size={}", self.size()))
            .arg(format!("--iodepth={}", self.depth))
            .arg(format!("--numjobs={}", self.jobs))
            .arg(flag("direct", self.mode == Mode::Direct))
            .arg(flag("sync", self.mode == Mode::Sync))
            .arg(flag("thread", self.threads));
        // fio reads the ring itself only if its minimum of completions is 0.
        match self.userspace_reap {
            true => fio.args(["--userspace_reap=1", "--iodepth_batch_complete_min=0"]),
            false => fio,
        }
    }
}
