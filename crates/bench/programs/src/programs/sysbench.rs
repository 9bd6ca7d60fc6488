//! sysbench: its output, and its own asynchronous file test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::run::{Run, Tools, plain};
use nowait_harness::cache;
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::launch::{self, Finished};
use nowait_harness::metric::{Metric, Sample};

/// Time beyond that of a run after which sysbench counts as hung.
const GRACE: Duration = Duration::from_mins(2);
const PREPARE: Duration = Duration::from_mins(30);

/// Number of files of sysbench's file test; `BACKLOG` is its number of reads in flight.
const FILES: usize = 4;
const BACKLOG: u32 = 64;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Printed {
    /// Transactions, or requests.
    pub(crate) events: f64,
    pub(crate) sample: Sample,
}

pub(crate) fn prepare_files(tools: &Tools, size_bytes: u64) -> Result<()> {
    let folder = files_in(tools);
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir(&folder).context(|| format!("create {}", folder.display()))?;
    let mut command = files(plain("sysbench")?, &folder, size_bytes);
    finished(command.arg("prepare"), PREPARE).map(drop)
}

pub(crate) fn fileio(run: &Run<'_>, direct: bool) -> Result<Sample> {
    let folder = files_in(run.tools);
    for index in 0..FILES {
        cache::make_cold(&folder.join(format!("test_file.{index}")), run.tools.drop_caches)?;
    }
    let mut command = files(run.timed("sysbench")?, &folder, run.size_bytes);
    command.args(["--file-io-mode=async", "--file-test-mode=rndrd", "--threads=1"]);
    command.arg(format!("--file-async-backlog={BACKLOG}"));
    command.arg(if direct { "--file-extra-flags=direct" } else { "--file-extra-flags=" });
    let done = finished(for_a_time(&mut command, run).arg("run"), run.runtime + GRACE)?;
    let Printed { events, mut sample } = parse(&done.stdout)?;
    sample.insert(Metric::CpuUsPerOperation, done.usage.cpu_us / events);
    if let Some(timer) = &run.tools.timer {
        sample.extend(timer.times()?.held_up_sample());
    }
    Ok(sample)
}

fn files(mut command: Command, folder: &Path, size_bytes: u64) -> Command {
    command.arg("fileio").arg(format!("--file-num={FILES}")).current_dir(folder);
    command.arg(format!("--file-total-size={size_bytes}"));
    command
}

fn files_in(tools: &Tools) -> PathBuf {
    tools.folder.join("sysbench")
}

pub(crate) fn for_a_time<'a>(command: &'a mut Command, run: &Run<'_>) -> &'a mut Command {
    command.arg(format!("--time={}", run.runtime.as_secs_f64().ceil()));
    command.args(["--percentile=99", "--events=0"]).arg(format!("--rand-seed={}", run.seed))
}

/// Fails also if sysbench prints a fatal error.
pub(crate) fn finished(command: &mut Command, limit: Duration) -> Result<Finished> {
    let done = launch::run(command, limit)?;
    let fatal = done.stdout.lines().chain(done.stderr.lines()).find(|line| line.contains("FATAL"));
    if done.status.success() && fatal.is_none() {
        return Ok(done);
    }
    let said = fatal.unwrap_or_else(|| launch::first_line(&done.stderr));
    Err(Failure::new(format!("sysbench {}: {said}", done.status)))
}

pub(crate) fn parse(text: &str) -> Result<Printed> {
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        let word = line.and_then(|line| line.split_whitespace().next());
        let figure = word.and_then(|word| word.trim_end_matches('s').parse::<f64>().ok());
        figure.ok_or_else(|| Failure::new(format!("sysbench prints no '{name}'")))
    };
    let (events, elapsed_s) = (figure("total number of events:")?, figure("total time:")?);
    if events < 1.0 || elapsed_s <= 0.0 {
        return Err(Failure::new("sysbench did nothing; give a longer --runtime"));
    }
    let mut sample = Sample::from([
        (Metric::LatencyUsP99, figure("99th percentile:")? * 1e3),
        (Metric::LatencyUsMax, figure("max:")? * 1e3),
    ]);
    match figure("transactions:") {
        Ok(_) => sample.insert(Metric::TransactionsPerS, events / elapsed_s),
        Err(_) => sample.insert(Metric::Iops, events / elapsed_s),
    };
    Ok(Printed { events, sample })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLTP: &str = "\
SQL statistics:
    queries performed:
        read:                            12026
    transactions:                        850    (422.95 per sec.)
    queries:                             17136  (8526.53 per sec.)

General statistics:
    total time:                          2.0000s
    total number of events:              850

Latency (ms):
         min:                                    4.98
         avg:                                   37.59
         max:                                  115.04
         99th percentile:                       84.47
         sum:                                31950.40
";

    #[test]
    fn transactions_and_their_times_are_found() {
        let Printed { events, sample } = parse(OLTP).expect("the sample is valid");
        assert_eq!(events, 850.0);
        let expected = [
            (Metric::TransactionsPerS, 425.0),
            (Metric::LatencyUsP99, 84_470.0),
            (Metric::LatencyUsMax, 115_040.0),
        ];
        assert_eq!(sample, Sample::from(expected));
    }

    #[test]
    fn without_transactions_requests_are_counted() {
        let sample = parse(&OLTP.replace("transactions:", "reads:")).expect("valid").sample;
        assert_eq!(sample[&Metric::Iops], 425.0);
    }

    #[test]
    fn anything_else_is_an_error() {
        assert!(parse("").is_err());
        assert!(parse(&OLTP.replace("99th", "95th")).is_err());
        let none = OLTP.replace("events:              850", "events:              0");
        assert!(parse(&none).expect_err("nothing").to_string().contains("--runtime"));
    }
}
