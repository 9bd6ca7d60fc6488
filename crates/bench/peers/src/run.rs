//! The program of one run: reads a job, carries it out, writes its figures.

use std::fs;
use std::thread::ScopedJoinHandle;

use nowait_sys::fd;

use crate::job::{Job, Outcome, Transfer, Work};
use crate::registry::{self, EngineDef};
use crate::{act, transfer, warm};
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::memory;
use nowait_harness::usage::Used;

/// Carries out the job in `text`, which is JSON, and writes its figures to the file that the job
/// names.
///
/// # Errors
/// The engine does not work here (wrong usage), a request failed, or the bytes were wrong.
pub fn run(text: &str) -> Result<()> {
    let job: Job = serde_json::from_str(text)
        .map_err(|error| Failure::new(format!("no description of a run: {error}")))?;
    fd::raise_nofile_limit();
    let mut figures = carry_out(&job)?;
    figures.insert("rss_bytes_max".to_owned(), memory::peak_bytes());
    let text = serde_json::to_string(&figures)
        .map_err(|error| Failure::new(format!("outcome: {error}")))?;
    fs::write(&job.outcome, text).context(|| format!("write {}", job.outcome.display()))
}

fn carry_out(job: &Job) -> Result<Outcome> {
    let engine = registry::find(&job.engine)
        .ok_or_else(|| Failure::usage(format!("no engine '{}'", job.engine)))?;
    match &job.work {
        Work::Transfer(work) => transfer(engine, job, work),
        Work::Act(act) => act::run(job.runtime(), *act),
    }
}

fn transfer(engine: &EngineDef, job: &Job, work: &Transfer) -> Result<Outcome> {
    if work.segments > 1 && !engine.has_vectors() {
        return Err(Failure::usage("this engine has no requests of several segments"));
    }
    // Fills the cache before `with` maps the file: the mapping gets the pages cached then.
    if !engine.has_own_cache() && !engine.direct {
        warm::kernel_cache(job, work.warm)?;
    }
    let run = transfer::Run::new(job, work)?;
    // The figure of memory counts the growth from here on, which the engine causes.
    memory::forget_peak();
    let before_bytes = memory::peak_bytes();
    let mut figures = engine.with(job, run)?;
    let added = (memory::peak_bytes() - before_bytes).max(0.0);
    figures.insert("memory_added_bytes".to_owned(), added);
    Ok(figures)
}

pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))
}

pub(crate) fn rates(requests: f64, block_bytes: usize, wall_s: f64, used: Used) -> Outcome {
    let figures = [
        ("cpu_us_per_io", used.cpu_us / requests),
        ("context_switches_per_io", used.switches / requests),
        ("iops", requests / wall_s),
        ("iops_per_core", requests * 1e6 / used.cpu_us.max(1.0)),
        ("bytes_per_s", requests * block_bytes as f64 / wall_s),
    ];
    figures.map(|(name, figure)| (name.to_owned(), figure)).into()
}
