//! Reads a file by the futures of one crate, as `nowait bench futures` asks, and prints what it
//! cost as one line of JSON.
//!
//! ```text
//!  main ─► load    which blocks, how many tasks, until when; what was measured
//!      └─► ways    one function for each crate: its executor, its file, the same tasks
//!            └── memory   a buffer aligned for direct I/O, by each crate's traits
//! ```

mod load;
mod memory;
mod ways;

use clap::{Parser, ValueEnum};
use load::{Load, Report};
use std::{io, path::PathBuf, process::ExitCode, time::Duration};

/// Reads blocks of a file by the futures of one crate.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Whose futures
    #[arg(value_enum)]
    way: Way,

    /// File of words that tell their places, as the benchmark lays it out
    file: PathBuf,

    /// Bytes of the file to read from
    #[arg(long, value_name = "BYTES")]
    size: u64,

    /// The source of the reads: memory, each block once from the disk, or direct
    #[arg(long, value_enum)]
    reads: Reads,

    /// Threads, each with an executor of its own
    #[arg(long, default_value_t = 1)]
    threads: usize,

    /// Tasks of a thread, each with one read at a time
    #[arg(long, default_value_t = 32)]
    tasks: usize,

    /// How long
    #[arg(long, value_name = "MS")]
    runtime_ms: u64,

    /// The same blocks for the same seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reads {
    Cached,
    Uncached,
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// nowait in tokio, with the kernel's page cache
    Nowait,
    /// nowait in tokio, with its own page cache
    NowaitUser,
    TokioUring,
    Compio,
    Monoio,
    /// tokio::fs: seek and read
    TokioFs,
    /// tokio's spawn_blocking, with a pread inside
    SpawnBlocking,
    /// pread in the task, which holds the executor up
    Pread,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("nowait-bench-futures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> io::Result<Report> {
    let load = Load {
        path: args.file.clone(),
        size: args.size,
        direct: args.reads == Reads::Direct,
        once: args.reads == Reads::Uncached,
        timed: args.reads != Reads::Cached,
        tasks: args.tasks,
        seed: args.seed,
        runtime: Duration::from_millis(args.runtime_ms),
    };
    match args.reads {
        Reads::Cached => load.fill_page_cache()?,
        Reads::Uncached => load.empty_page_cache()?,
        Reads::Direct => {}
    }
    match args.way {
        Way::Nowait => ways::nowait(&load, args.threads, false),
        Way::NowaitUser => ways::nowait(&load, args.threads, true),
        Way::TokioUring => load.on_threads(args.threads, ways::tokio_uring),
        Way::Compio => load.on_threads(args.threads, ways::compio),
        Way::Monoio => load.on_threads(args.threads, ways::monoio),
        Way::TokioFs => load.on_threads(args.threads, ways::tokio_fs),
        Way::SpawnBlocking => load.on_threads(args.threads, ways::spawn_blocking),
        Way::Pread => load.on_threads(args.threads, ways::pread),
    }
}
