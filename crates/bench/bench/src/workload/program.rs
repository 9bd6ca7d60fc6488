//! The process of one run: this program, called with a job.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nowait_peers::job::{Backend, Job};

use crate::error::{Context, Failure, Result};
use crate::launch;
use crate::metric::{Metric, Sample};
use crate::seccomp;

/// The time that a run may take beyond its runtime: starting, filling a cache, and writing back.
const GRACE: Duration = Duration::from_mins(3);
/// The exit code by which a run says that its engine does not work here.
const UNUSABLE: i32 = 2;

pub(crate) struct Program {
    path: PathBuf,
    outcome: tempfile::NamedTempFile,
}

impl Program {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            path: std::env::current_exe().context(|| "find this program".to_owned())?,
            outcome: tempfile::NamedTempFile::new().context(|| "temporary file".to_owned())?,
        })
    }

    /// Fails with wrong usage if the engine does not work here.
    pub(crate) fn run(&self, job: Job) -> Result<Sample> {
        let job = Job { outcome: self.outcome.path().to_owned(), ..job };
        let text = serde_json::to_string(&job).map_err(|e| Failure::new(e.to_string()))?;
        let mut command = Command::new(&self.path);
        command.arg("job").arg(text);
        if job.backend == Backend::Kaio {
            seccomp::forbid_uring(&mut command);
        }
        let finished = launch::run(&mut command, job.runtime() + GRACE)?;
        if !finished.status.success() {
            let message = finished.stderr.trim().to_owned();
            return Err(match finished.status.code() {
                Some(UNUSABLE) => Failure::usage(message),
                _ => Failure::new(message),
            });
        }
        let text = fs::read_to_string(self.outcome.path()).context(|| "outcome".to_owned())?;
        let mut sample: Sample = serde_json::from_str(&text)
            .map_err(|error| Failure::new(format!("outcome: {error}")))?;
        let busy = finished.usage.other_us / finished.usage.wall_us;
        sample.insert(Metric::OtherBusyCores, busy);
        sample.insert(Metric::PageCacheGrowthBytes, finished.usage.cache_growth_bytes);
        Ok(sample)
    }
}
