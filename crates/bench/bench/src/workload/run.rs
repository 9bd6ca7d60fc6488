//! The program of one run, and how this program starts it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use super::job::{self, Backend, Job, Outcome, Work};
use super::{cached, database, growth, limits, scan, transfer};
use crate::error::{BenchError, Context, Result};
use crate::launch;
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::peers::{Engine, registry};
use crate::seccomp;
use crate::usage::Used;

/// Time that a run may take beyond its runtime: starting, filling a cache, and writing back.
const GRACE: Duration = Duration::from_mins(3);
/// The command that carries out a run, whatever its workload is.
const RUN_COMMAND: &str = "aio-stress";
/// The exit code of a run whose engine does not work here.
const UNUSABLE: i32 = 2;

/// This program, as it is called for a run.
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    outcome: tempfile::NamedTempFile,
}

impl Program {
    /// Calls itself in the way it was called, up to the name of the command.
    pub(crate) fn new(workload: &str) -> Result<Self> {
        let before = std::env::args_os().skip(1).take_while(|argument| argument != workload);
        Ok(Self {
            path: std::env::current_exe().context(|| "find this program".to_owned())?,
            arguments: before.chain([RUN_COMMAND, "--one"].map(OsString::from)).collect(),
            outcome: tempfile::NamedTempFile::new().context(|| "temporary file".to_owned())?,
        })
    }

    /// Carries out a run in a process of its own.
    ///
    /// # Errors
    /// The engine does not work here (wrong usage), or the run failed.
    pub(crate) fn run(&self, job: Job) -> Result<Sample> {
        let job = Job { outcome: self.outcome.path().to_owned(), ..job };
        let text = serde_json::to_string(&job).map_err(|e| BenchError::failed(e.to_string()))?;
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).arg(text);
        if job.backend == Backend::Kaio {
            seccomp::forbid_uring(&mut command);
        }
        let limit = Duration::from_millis(job.runtime_ms) + GRACE;
        let finished = launch::run(&mut command, limit)?;
        if !finished.status.success() {
            let message = finished.stderr.trim().to_owned();
            return Err(match finished.status.code() {
                Some(UNUSABLE) => BenchError::usage(message),
                _ => BenchError::failed(message),
            });
        }
        let text = fs::read_to_string(self.outcome.path()).context(|| "outcome".to_owned())?;
        let outcome: Outcome =
            serde_json::from_str(&text).map_err(|e| BenchError::failed(format!("outcome: {e}")))?;
        let mut sample = job::sample(&outcome);
        let busy = finished.usage.other_us / finished.usage.wall_us;
        sample.insert(Metric::OtherBusyCores, busy);
        sample.insert(Metric::PageCacheGrowthBytes, finished.usage.cache_growth_bytes);
        Ok(sample)
    }
}

/// Carries out the run that `text` describes, and writes its outcome where that says.
///
/// # Errors
/// The engine does not work here (wrong usage), a request failed, or the bytes were wrong.
pub(crate) fn run(text: &str) -> Result<()> {
    let job: Job = serde_json::from_str(text)
        .map_err(|error| BenchError::failed(format!("no description of a run: {error}")))?;
    let mut sample = carry_out(&job)?;
    sample.insert(Metric::RssBytesMax, memory::peak_bytes());
    let text = serde_json::to_string(&job::outcome(&sample))
        .map_err(|error| BenchError::failed(format!("outcome: {error}")))?;
    fs::write(&job.outcome, text).context(|| format!("write {}", job.outcome.display()))
}

fn carry_out(job: &Job) -> Result<Sample> {
    let (engine, place) = (registry::find(&job.engine)?, job.place());
    let library = job.library.as_deref();
    match job.work {
        Work::Transfer(transfer) => engine.with(&place, library, transfer::Run { job, transfer }),
        Work::Cleaner(cleaner) => engine.with(&place, library, database::Run { job, cleaner }),
        Work::Prefetch(prefetch) => engine.with(&place, library, scan::Run { job, prefetch }),
        Work::Growth(growth) => {
            let kernel = !engine.is_native();
            growth::Run { job, growth }.carry_out(kernel)
        }
        Work::Act(act) => limits::act_out(job, act),
        Work::Cached(work) => {
            // Before the file is mapped: it is populated from what is cached then.
            if !engine.has_own_cache() && !engine.direct {
                cached::warm_kernel(job, &work)?;
            }
            engine.with(&place, library, cached::Run { job, work })
        }
    }
}

/// Waits for a thread of a run.
///
/// # Errors
/// The error of the thread, or that it panicked.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(BenchError::failed("a thread panicked")))
}

/// Returns the rates of so many requests of `block_bytes` each, and what each has used.
pub(crate) fn rates(requests: f64, block_bytes: usize, wall_s: f64, used: Used) -> Sample {
    let mut sample = used.for_each_of(requests);
    sample.extend([
        (Metric::Iops, requests / wall_s),
        (Metric::IopsPerCore, requests * 1e6 / used.cpu_us.max(1.0)),
        (Metric::BytesPerS, requests * block_bytes as f64 / wall_s),
    ]);
    sample
}

/// Fails if bytes were read that were not those expected.
pub(crate) fn require_right(wrong: u64) -> Result<()> {
    match wrong {
        0 => Ok(()),
        wrong => Err(BenchError::failed(format!("{wrong} reads returned wrong bytes"))),
    }
}

/// Fills a cache of this process with blocks of another file, as if it had been in use for some
/// time: the first use of memory costs more than the device, and the kernel's cache has done it
/// long ago.
///
/// # Errors
/// There is no room for a sparse file beside the test file, or it cannot be read.
pub(crate) fn fill_pool<E: Engine>(engine: &E, job: &Job, block_bytes: usize) -> Result<()> {
    if !engine.has_own_cache() {
        return Ok(());
    }
    if let Some(other) = &job.other {
        return engine.fill(other, job.pool_bytes, block_bytes);
    }
    let on_disk = job.path.parent().filter(|_| job.path.is_file());
    let folder = on_disk.map_or_else(std::env::temp_dir, Path::to_owned);
    let what = || format!("a sparse file in {}", folder.display());
    let file = tempfile::NamedTempFile::new_in(&folder).context(what)?;
    file.as_file().set_len(job.pool_bytes).context(what)?;
    engine.fill(file.path(), job.pool_bytes, block_bytes)
}
