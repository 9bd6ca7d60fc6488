//! fio as the client, on a socket of NBD or on a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Work;
use super::place::DEVICE;
use nowait_harness::error::Result;
use nowait_harness::fio::{self, Parsed};

/// The resources of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// An export, at a socket.
    Nbd(PathBuf),
    /// A file.
    File(PathBuf),
}

/// How long, on how much, and with which numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) size_bytes: u64,
    pub(crate) runtime: Duration,
    pub(crate) seed: u64,
}

/// Runs fio on `target` to its end.
pub(crate) fn run(target: &Target, work: Work, span: Span) -> Result<Parsed> {
    let block_bytes = if matches!(work, Work::Sequential { .. }) { 256 << 10 } else { 4096 };
    let mut words = vec![format!("--bs={block_bytes}"), "--time_based".to_owned()];
    words.push(format!("--runtime={}ms", span.runtime.as_millis()));
    words.push(format!("--randseed={}", span.seed));
    match work {
        Work::Write { flush, clients } => {
            words.extend(["--rw=randwrite".to_owned(), format!("--fsync={flush}")]);
            words.extend([format!("--numjobs={clients}"), "--group_reporting".to_owned()]);
            // Without a flush for each, the writes do not wait for another.
            words.push(format!("--iodepth={}", flush.min(16)));
        }
        Work::Read { depth } => match target {
            Target::Nbd(_) => {
                words.extend(["--rw=randread".to_owned(), format!("--iodepth={depth}")]);
            }
            // Blocking calls: as many jobs.
            Target::File(_) => words.extend([
                "--rw=randread".to_owned(),
                format!("--numjobs={depth}"),
                "--group_reporting".to_owned(),
            ]),
        },
        Work::Sequential { depth } => {
            words.extend(["--rw=read".to_owned(), format!("--iodepth={depth}")]);
        }
        Work::Killed | Work::Snapshot | Work::Clone => {}
    }
    ask(target, &words, span)
}

/// Writes all of the image once.
pub(crate) fn fill(target: &Target, span: Span) -> Result<()> {
    let words = ["--rw=write", "--bs=262144", "--iodepth=4", "--end_fsync=1"].map(str::to_owned);
    ask(target, &words, span).map(drop)
}

/// Reads one block: a server may listen before its image is open.
pub(crate) fn touch(target: &Target, span: Span) -> Result<()> {
    let words = ["--rw=randread", "--bs=4096", "--number_ios=1"].map(str::to_owned);
    ask(target, &words, span).map(drop)
}

/// Reads all of the image once.
pub(crate) fn warm(target: &Target, span: Span) -> Result<()> {
    let words = ["--rw=read", "--bs=262144", "--iodepth=16"].map(str::to_owned);
    ask(target, &words, span).map(drop)
}

/// Returns how clients of NBD name the image at a socket.
pub(crate) fn uri(socket: &Path) -> String {
    format!("nbd+unix:///{DEVICE}?socket={}", socket.display())
}

fn ask(target: &Target, words: &[String], span: Span) -> Result<Parsed> {
    let mut command = fio::command(Path::new("fio"));
    command.args(["--name=job", "--refill_buffers"]).args(words);
    command.arg(format!("--size={}", span.size_bytes));
    match target {
        Target::Nbd(socket) => {
            command.arg("--ioengine=nbd").arg(format!("--uri={}", uri(socket)));
        }
        Target::File(path) => {
            command.args(["--ioengine=psync", "--direct=1"]);
            command.arg(format!("--filename={}", path.display()));
        }
    }
    Ok(fio::run_one(&mut command, span.runtime)?.0)
}
