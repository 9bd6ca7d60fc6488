//! One run of a program: its output, and the resources that the whole process used.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

use crate::error::{Context, Failure, Result};
use crate::interrupt;
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::usage::Used;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The resources of a process and all its threads, including the kernel's workers for `io_uring`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    pub cpu_us: f64,
    pub switches: f64,
    pub wall_us: f64,
    /// Processor time that everything else used during the run, in microseconds.
    pub other_us: f64,
    /// At least the memory of this program, from which the child was forked.
    pub rss_bytes_max: f64,
    /// Bytes that the kernel read from disks for the process, including readahead.
    pub disk_read_bytes: f64,
    /// Growth of the machine's page cache during the run; 0 if the page cache has shrunk.
    pub cache_growth_bytes: f64,
}

impl Usage {
    pub fn memory(&self, sample: &mut Sample) {
        sample.insert(Metric::RssBytesMax, self.rss_bytes_max);
        sample.insert(Metric::PageCacheGrowthBytes, self.cache_growth_bytes);
    }
}

pub struct Finished {
    pub status: ExitStatus,
    pub usage: Usage,
    pub stdout: String,
    pub stderr: String,
}

/// An inherited variable could change one subject into another.
pub fn inherit_nothing_of_ours(command: &mut Command) {
    let inherited: Vec<OsString> = std::env::vars_os().map(|(name, _)| name).collect();
    for name in inherited.iter().filter(|name| is_ours(&name.to_string_lossy())) {
        command.env_remove(name);
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with("NOWAIT_") || ["LD_PRELOAD", "LD_LIBRARY_PATH"].contains(&name)
}

/// Runs a command to its end; kills the command after `limit`, or if the measurement is
/// interrupted.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    let program = command.get_program().to_string_lossy().into_owned();
    let what = || "temporary file".to_owned();
    let [stdout, stderr] =
        [NamedTempFile::new().context(what)?, NamedTempFile::new().context(what)?];
    command.stdin(Stdio::null());
    command.stdout(stdout.reopen().context(what)?).stderr(stderr.reopen().context(what)?);
    let (busy_before, cache_before) = (busy_us(), memory::page_cache_bytes());
    let start = Instant::now();
    let mut child = command.spawn().context(|| format!("cannot start {program}"))?;
    let pid = libc::pid_t::try_from(child.id()).unwrap_or(libc::pid_t::MAX);
    let outcome = loop {
        match reap(pid) {
            Ok(None) => {}
            Ok(Some(ended)) => break Ok(ended),
            Err(error) => break Err(Failure::new(format!("wait for {program}: {error}"))),
        }
        let late = start.elapsed() > limit;
        if late || interrupt::check().is_err() {
            // The child has not been reaped, so the process ID still belongs to it.
            let _ = child.kill();
            let _ = child.wait();
            interrupt::check()?;
            break Err(Failure::new(format!("{program} did not end within {limit:?}")));
        }
        sleep(POLL_INTERVAL);
    };
    let (status, mut usage) = outcome?;
    usage.wall_us = start.elapsed().as_secs_f64() * 1e6;
    usage.other_us = (busy_us() - busy_before - usage.cpu_us).max(0.0);
    usage.cache_growth_bytes = (memory::page_cache_bytes() - cache_before).max(0.0);
    let [stdout, stderr] =
        [stdout, stderr].map(|file| fs::read_to_string(file.path()).unwrap_or_default());
    Ok(Finished { status, usage, stdout, stderr })
}

/// If the command fails, the error has the first line of the command's standard error.
pub fn succeed(command: &mut Command, limit: Duration) -> Result<Finished> {
    let finished = run(command, limit)?;
    if finished.status.success() {
        return Ok(finished);
    }
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    let line = first_line(&finished.stderr);
    Err(Failure::new(format!("{name} {}: {line}", finished.status)))
}

pub fn answer<T: DeserializeOwned>(command: &mut Command, limit: Duration) -> Result<T> {
    let finished = succeed(command, limit)?;
    serde_json::from_str(&finished.stdout).map_err(|error| Failure::new(error.to_string()))
}

pub fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("and said nothing")
}

/// Returns a message if the program cannot be started.
pub fn lack(program: &Path) -> Option<String> {
    let there = Command::new(program).arg("--version").output().is_ok();
    (!there).then(|| format!("{} is not installed", program.display()))
}

/// Reaps the child, and returns its status and its resources; `None` if it has not ended yet.
pub fn reap(pid: libc::pid_t) -> io::Result<Option<(ExitStatus, Usage)>> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid rusage, which is made of integers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals; the process is a child that was not reaped before.
    match unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut used) } {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
        _ => {
            let Used { cpu_us, switches } = Used::of(&used);
            let usage = Usage {
                cpu_us,
                switches,
                // `ru_maxrss` is in KiB.
                rss_bytes_max: used.ru_maxrss as f64 * 1024.0,
                // `ru_inblock` counts units of 512 bytes on all devices.
                disk_read_bytes: used.ru_inblock as f64 * 512.0,
                ..Usage::default()
            };
            Ok(Some((ExitStatus::from_raw(status), usage)))
        }
    }
}

/// Counts steal, too. Returns zero if /proc/stat cannot be read: then no other work is counted.
fn busy_us() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // SAFETY: sysconf reads no memory of this program.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    busy_ticks(&stat) * 1e6 / (ticks_per_s.max(1) as f64)
}

fn busy_ticks(stat: &str) -> f64 {
    let first = stat.lines().next().unwrap_or_default();
    let fields: Vec<f64> = first.split_whitespace().skip(1).flat_map(str::parse).collect();
    // The fields: user nice system [idle iowait] irq softirq steal. User includes guests.
    fields.iter().take(8).enumerate().filter(|(i, _)| ![3, 4].contains(i)).map(|(_, t)| t).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_iowait_are_not_busy() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 2000 8 16 32 64 128\ncpu0 9"), 63.0);
        assert_eq!(busy_ticks(""), 0.0);
    }

    #[test]
    fn settings_of_the_library_are_not_inherited() {
        assert!(is_ours("NOWAIT_BACKEND") && is_ours("LD_PRELOAD") && is_ours("LD_LIBRARY_PATH"));
        assert!(!is_ours("PATH") && !is_ours("TMPDIR"));
    }

    #[test]
    fn a_run_reports_status_output_and_usage() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo fine; echo oops >&2; exit 3"]);
        let finished = run(&mut command, Duration::from_secs(20)).expect("sh runs");
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.stdout.trim(), finished.stderr.trim()), ("fine", "oops"));
        assert!(finished.usage.wall_us > 0.0);
    }

    #[test]
    fn a_hanging_program_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("30");
        let error = run(&mut command, Duration::from_millis(50)).err().expect("killed");
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn a_missing_program_is_an_error() {
        assert!(run(&mut Command::new("/nonexistent/fio"), Duration::from_secs(1)).is_err());
    }
}
