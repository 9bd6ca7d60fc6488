//! fio as the client, on a socket of NBD or on a file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cases::Work;
use super::subject::DEVICE;
use nowait_harness::error::{BenchError, Context, Result};
use nowait_harness::fio::{PERCENTILES, Parsed, parse};
use nowait_harness::launch;

/// What is added to the time of a run before fio counts as hung.
const GRACE: Duration = Duration::from_mins(2);

/// What the client uses.
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
///
/// # Errors
/// It cannot be started, or fails.
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
    fio(target, &words, span)
}

/// Writes all of the image once.
///
/// # Errors
/// As for [`run`].
pub(crate) fn fill(target: &Target, span: Span) -> Result<()> {
    let words = ["--rw=write", "--bs=262144", "--iodepth=4", "--end_fsync=1"].map(str::to_owned);
    fio(target, &words, span).map(drop)
}

/// Reads one block: a server may listen before its image is open.
///
/// # Errors
/// As for [`run`].
pub(crate) fn touch(target: &Target, span: Span) -> Result<()> {
    let words = ["--rw=randread", "--bs=4096", "--number_ios=1"].map(str::to_owned);
    fio(target, &words, span).map(drop)
}

/// Reads all of the image once.
///
/// # Errors
/// As for [`run`].
pub(crate) fn warm(target: &Target, span: Span) -> Result<()> {
    let words = ["--rw=read", "--bs=262144", "--iodepth=16"].map(str::to_owned);
    fio(target, &words, span).map(drop)
}

/// Returns how clients of NBD name the image at a socket.
pub(crate) fn uri(socket: &Path) -> String {
    format!("nbd+unix:///{DEVICE}?socket={}", socket.display())
}

fn fio(target: &Target, words: &[String], span: Span) -> Result<Parsed> {
    let output = tempfile::NamedTempFile::new().context(|| "temporary file".to_owned())?;
    let mut command = Command::new("fio");
    command.args(["--name=job", "--unified_rw_reporting=mixed", "--slat_percentiles=1"]);
    command.args(["--clat_percentiles=1", PERCENTILES]);
    command.args(["--output-format=json", "--refill_buffers"]).args(words);
    command.arg(format!("--output={}", output.path().display()));
    command.arg(format!("--size={}", span.size_bytes));
    match target {
        Target::Nbd(socket) => {
            command.arg("--ioengine=nbd");
            command.arg(format!("--uri={}", uri(socket)));
        }
        Target::File(path) => {
            command.args(["--ioengine=psync", "--direct=1"]);
            command.arg(format!("--filename={}", path.display()));
        }
    }
    let finished = launch::run(&mut command, span.runtime + GRACE)?;
    let text = std::fs::read_to_string(output.path()).context(|| "read fio's output".to_owned())?;
    if !finished.status.success() {
        let line = finished.stderr.lines().next().unwrap_or("and said nothing").to_owned();
        return Err(BenchError::failed(format!("fio {}: {line}", finished.status)));
    }
    parse(&text)
}
