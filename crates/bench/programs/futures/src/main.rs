//! Reads a file by the futures of one crate, for `nowait bench futures`, and prints the cost as one
//! line of JSON.
//!
//! ```text
//!  main ─► load    the blocks, the number of tasks, the time of the end; the figures
//!      └─► ways    one function for each crate: its executor, its file, the same tasks
//!            └── memory   a buffer aligned for direct I/O, by each crate's traits
//! ```

mod load;
mod memory;
mod ways;

use load::{Load, Reads, Report};
use nowait_harness::{
    cache::{make_cached, make_cold},
    error::Failure,
};
use serde::Deserialize;
use std::{io, process::ExitCode};

#[derive(Debug, Deserialize)]
struct Job {
    way: Way,
    /// Number of threads, each with an executor of its own.
    threads: usize,
    #[serde(flatten)]
    load: Load,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// nowait in tokio, with the kernel's page cache
    Nowait,
    /// nowait in tokio, with its own page cache
    NowaitUser,
    TokioUring,
    Compio,
    /// tokio::fs: seek and read
    TokioFs,
    /// tokio's spawn_blocking, with a pread inside
    SpawnBlocking,
    /// pread in the task, which holds the executor up
    Pread,
}

fn main() -> ExitCode {
    let printed = run().map(|report| println!("{report}"));
    printed.map_or_else(|why| Failure::new(why.to_string()).report(), |()| ExitCode::SUCCESS)
}

fn run() -> io::Result<Report> {
    let job = std::env::args().nth(1).unwrap_or_default();
    let Job { way, threads, load } = serde_json::from_str(&job)?;
    match load.reads {
        Reads::Cached => make_cached(&load.path, load.size).map_err(io::Error::other)?,
        Reads::Uncached => make_cold(&load.path, false).map_err(io::Error::other)?,
        Reads::Direct => {}
    }
    match way {
        Way::Nowait => ways::nowait(&load, threads, false),
        Way::NowaitUser => ways::nowait(&load, threads, true),
        Way::TokioUring => load.on_threads(threads, ways::tokio_uring),
        Way::Compio => load.on_threads(threads, ways::compio),
        Way::TokioFs => load.on_threads(threads, ways::tokio_fs),
        Way::SpawnBlocking => load.on_threads(threads, ways::spawn_blocking),
        Way::Pread => load.on_threads(threads, ways::pread),
    }
}
