//! One job on one engine, through the interface of that engine: the peers that the benchmark
//! compares.
//!
//! ```text
//!  job ──► run           reads a job, carries it out, writes its figures
//!           ├─ transfer  reads and writes blocks; one loop for all
//!           └─ act       work without an engine: a system call, a wake-up
//!
//!  registry  the engines by name
//!    native  our page cache, the kernel's, or none: a queue of the native API
//!    guard   our page cache without a copy: pages are lent
//!    psync   pread, pwrite, preadv2            ring    io_uring
//!    aio     the kernel's native AIO           pool    threads that read and write for the caller
//!    copies  a mapping of the file; memory that holds a copy of it
//!    null    nothing: the cost of the harness
//!
//!  places, buffers, warm    offsets, memory, and caches before the clock starts
//! ```
//!
//! The crate knows no suite: `nowait-bench` makes the jobs and judges the figures.

mod act;
mod aio;
mod buffers;
mod copies;
mod guard;
pub mod job;
mod native;
mod null;
mod places;
mod pool;
mod psync;
pub mod registry;
mod ring;
mod run;
mod slots;
mod transfer;
mod warm;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use run::run;

use buffers::Buffers;
use job::Job;
use nowait_harness::error::{Context, Failure, Result};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    pub(crate) offset: u64,
    /// The generation that a write stamps into its buffer; reads have 0.
    pub(crate) generation: u32,
    /// A number of the caller, such as the time when the request began.
    pub(crate) tag: u64,
    pub(crate) file: u32,
}

/// The setup of a process, shared by its threads.
pub(crate) trait Engine: Sync {
    type Peer: Peer;

    /// A peer has at most one request in flight in each of its buffers.
    fn peer(&self, buffers: Buffers) -> Result<Self::Peer>;

    /// Returns `true` if reads through the engine fill a page cache in this process.
    fn has_own_cache(&self) -> bool {
        false
    }

    fn moves_data(&self) -> bool {
        true
    }

    /// Fills the engine's own cache with the first `bytes` of another file, in blocks in random
    /// order. The engine keeps that file open, so the pages stay until others replace them.
    fn fill(&self, _other: &Path, _bytes: u64, _block_bytes: usize) -> Result<()> {
        Ok(())
    }
}

pub(crate) trait Peer {
    /// `true` if `submit` only starts requests, so that its time is a useful figure.
    const ASYNCHRONOUS: bool = true;

    /// Starts requests, or queues them for `reap`. The caller passes no more requests than buffers
    /// are free.
    fn submit(&mut self, requests: &[Request]) -> Result<()>;

    /// Waits until `min` requests are over; passes the bytes of each ended request to `each`, one
    /// segment after another.
    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()>;

    /// Makes all writes durable, if the engine can.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

pub(crate) type Files = Arc<[File]>;

pub(crate) struct OnFiles<F> {
    files: Files,
    make: F,
}

impl<P: Peer, F: Fn(Files, Buffers) -> Result<P> + Sync> OnFiles<F> {
    pub(crate) fn open(job: &Job, direct: bool, make: F) -> Result<Self> {
        let open = |path: &PathBuf| open(job, direct, path);
        let files: Result<Vec<File>> = job.paths.iter().map(open).collect();
        Ok(Self { files: files?.into(), make })
    }
}

impl<P: Peer, F: Fn(Files, Buffers) -> Result<P> + Sync> Engine for OnFiles<F> {
    type Peer = P;

    fn peer(&self, buffers: Buffers) -> Result<P> {
        (self.make)(self.files.clone(), buffers)
    }
}

fn sync(files: &Files) -> Result<()> {
    files.iter().try_for_each(|file| file.sync_all().context(|| "fsync".to_owned()))
}

fn open(job: &Job, direct: bool, path: &Path) -> Result<File> {
    let direct = if direct { libc::O_DIRECT } else { 0 };
    let sync = if job.sync { libc::O_DSYNC } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(job.work.writes()).custom_flags(direct | sync);
    let opened = options.open(path);
    if let Err(error) = &opened
        && direct != 0
        && error.raw_os_error() == Some(libc::EINVAL)
    {
        let path = path.display();
        return Err(Failure::usage(format!("{path} cannot be opened with O_DIRECT")));
    }
    opened.context(|| format!("open {}", path.display()))
}
