//! The program of one run.

use std::fs;
use std::path::Path;

use super::database;
use super::engine;
use super::job::{self, Job, Work};
use super::scan;
use super::transfer;
use crate::error::{BenchError, Context, Result};
use crate::metric::{Metric, Sample};
use crate::peers::Engine;

/// Carries out the run that `text` describes, and writes its outcome where that says.
///
/// # Errors
/// The engine does not work here (wrong usage), a request failed, or the bytes were wrong.
pub(crate) fn run(text: &str) -> Result<()> {
    let job: Job = serde_json::from_str(text)
        .map_err(|error| BenchError::failed(format!("no description of a run: {error}")))?;
    let mut sample = carry_out(&job)?;
    sample.extend(memory_used().map(|bytes| (Metric::RssBytesMax, bytes)));
    let text = serde_json::to_string(&job::outcome(&sample))
        .map_err(|error| BenchError::failed(format!("outcome: {error}")))?;
    fs::write(&job.outcome, text).context(|| format!("write {}", job.outcome.display()))
}

fn carry_out(job: &Job) -> Result<Sample> {
    let (engine, place) = (engine::find(&job.engine)?, job.place());
    let library = job.library.as_deref();
    match job.work {
        Work::Transfer(transfer) => engine.with(&place, library, transfer::Run { job, transfer }),
        Work::Cleaner(cleaner) => engine.with(&place, library, database::Run { job, cleaner }),
        Work::Prefetch(prefetch) => engine.with(&place, library, scan::Run { job, prefetch }),
    }
}

/// Fills a cache of this process with pages of nothing, as if it had been in use for some time: the
/// first use of memory costs more than the device, and the kernel's cache has done it long ago.
///
/// # Errors
/// There is no room for a sparse file beside the test file, or it cannot be read.
pub(crate) fn fill_pool<E: Engine>(engine: &E, job: &Job) -> Result<()> {
    if !engine.has_own_cache() {
        return Ok(());
    }
    let on_disk = job.path.parent().filter(|_| job.path.is_file());
    let folder = on_disk.map_or_else(std::env::temp_dir, Path::to_owned);
    let what = || format!("a sparse file in {}", folder.display());
    let file = tempfile::NamedTempFile::new_in(&folder).context(what)?;
    file.as_file().set_len(job.pool_bytes).context(what)?;
    engine.fill(file.path(), job.pool_bytes)
}

/// Returns the largest memory this process has had, in bytes.
fn memory_used() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}
