//! fio as the client of an NBD server.

use std::time::Duration;

use super::Work;
use crate::served::Target;
use nowait_harness::error::Result;
use nowait_harness::fio::Parsed;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) size_bytes: u64,
    pub(crate) runtime: Duration,
    pub(crate) seed: u64,
}

pub(crate) fn run(uri: &str, work: Work, span: Span) -> Result<Parsed> {
    let job = match work {
        // Clients that flush less often than after each write have several writes in flight.
        Work::Write { flush, clients } => format!(
            "--rw=randwrite --bs=4k --fsync={flush} --iodepth={} --numjobs={clients} \
             --group_reporting",
            flush.min(16)
        ),
        Work::Read { depth } => format!("--rw=randread --bs=4k --iodepth={depth}"),
        Work::Sequential { depth } => format!("--rw=read --bs=256k --iodepth={depth}"),
        Work::Killed | Work::Snapshot | Work::Clone => String::new(),
    };
    let (runtime_ms, seed) = (span.runtime.as_millis(), span.seed);
    let time = format!(" --time_based --runtime={runtime_ms}ms --randseed={seed}");
    ask(uri, &(job + &time), span)
}

pub(crate) fn fill(uri: &str, span: Span) -> Result<()> {
    ask(uri, "--rw=write --bs=256k --iodepth=4 --end_fsync=1", span).map(drop)
}

/// Reads one block: a server may listen before its image is open.
pub(crate) fn touch(uri: &str, span: Span) -> Result<()> {
    ask(uri, "--rw=randread --bs=4k --number_ios=1", span).map(drop)
}

pub(crate) fn warm(uri: &str, span: Span) -> Result<()> {
    ask(uri, "--rw=read --bs=256k --iodepth=16", span).map(drop)
}

fn ask(uri: &str, job: &str, span: Span) -> Result<Parsed> {
    let target = Target::Nbd(uri.to_owned());
    target.ask(&format!("{job} --refill_buffers"), span.size_bytes, span.runtime)
}
