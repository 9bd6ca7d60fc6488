//! Runs fio, and reduces its JSON output to figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Context, Failure, Result};
use crate::launch::{self, Usage};
use crate::metric::{Metric, Sample};

/// All jobs report reads and writes together, with the percentiles that `sample` parses.
const OPTIONS: [&str; 6] = [
    "--output-format=json",
    "--eta=never",
    "--unified_rw_reporting=mixed",
    "--slat_percentiles=1",
    "--clat_percentiles=1",
    "--percentile_list=50:90:99:99.9:99.99",
];

/// The time that a run may take beyond its runtime: start-up, and waiting for requests in flight.
const GRACE: Duration = Duration::from_mins(2);

pub fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output().map_err(|error| {
        let name = program.display();
        Failure::new(format!(
            "cannot start {name} ({error}); install it (apt install fio, dnf install fio) or name \
             it with --fio"
        ))
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The caller adds the jobs. The command inherits no `NOWAIT_*`, `LD_PRELOAD` or `LD_LIBRARY_PATH`.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    launch::inherit_nothing_of_ours(&mut command);
    command.args(OPTIONS);
    command
}

pub fn run(command: &mut Command, runtime: Duration) -> Result<(Vec<Parsed>, Usage)> {
    let output = tempfile::NamedTempFile::new().context(|| "temporary file".to_owned())?;
    command.arg(format!("--output={}", output.path().display()));
    let finished = launch::run(command, runtime + GRACE)?;
    let said = finished.stderr.lines().find(|line| !line.trim().is_empty());
    if let Some(line) = said.filter(|_| finished.stderr.contains("cannot be preloaded")) {
        return Err(Failure::new(line));
    }
    let text = fs::read_to_string(output.path()).context(|| "read fio's output".to_owned())?;
    let parsed = parse_jobs(&text);
    if !finished.status.success() {
        let why = parsed.err().map_or_else(String::new, |error| format!(", {error}"));
        let said = said.unwrap_or("and said nothing");
        return Err(Failure::new(format!("fio {}{why}: {said}", finished.status)));
    }
    Ok((parsed?, finished.usage))
}

pub fn run_one(command: &mut Command, runtime: Duration) -> Result<(Parsed, Usage)> {
    let (jobs, usage) = run(command, runtime)?;
    let first = jobs.into_iter().next();
    Ok((first.ok_or_else(|| Failure::new("fio reports no job"))?, usage))
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<JobOutput>,
}

#[derive(Deserialize)]
struct JobOutput {
    error: i32,
    /// Reads and writes together, because percentiles cannot be added.
    mixed: Direction,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: f64,
    bw_bytes: f64,
    iops: f64,
    total_ios: f64,
    slat_ns: Latency,
    clat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    max: f64,
    mean: f64,
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

impl Latency {
    /// `name` is as fio writes it, such as `99.900000`.
    fn percentile_us(&self, name: &str) -> Result<f64> {
        let found = self.percentile.get(name).map(|ns| ns / 1e3);
        found.ok_or_else(|| Failure::new(format!("fio reports no percentile {name}")))
    }
}

#[derive(Debug, PartialEq)]
pub struct Parsed {
    pub sample: Sample,
    pub ios: f64,
    pub bytes: f64,
}

/// Returns the jobs in the order of the command line. Skips lines before the JSON.
fn parse_jobs(text: &str) -> Result<Vec<Parsed>> {
    let start = text.find("{\n").ok_or_else(|| Failure::new("fio wrote no JSON"))?;
    let end = text.rfind('}').map_or(text.len(), |brace| brace + 1);
    let json = text.get(start..end).unwrap_or_default();
    let output: Output = serde_json::from_str(json)
        .map_err(|error| Failure::new(format!("fio's JSON is not understood: {error}")))?;
    output.jobs.iter().map(parsed).collect()
}

fn parsed(job: &JobOutput) -> Result<Parsed> {
    if job.error != 0 {
        let cause = std::io::Error::from_raw_os_error(job.error);
        return Err(Failure::new(format!("the fio job failed: {cause}")));
    }
    if job.mixed.total_ios < 1.0 {
        return Err(Failure::new("fio completed no request; give a longer --runtime"));
    }
    Ok(Parsed { sample: sample(&job.mixed)?, ios: job.mixed.total_ios, bytes: job.mixed.io_bytes })
}

fn sample(mixed: &Direction) -> Result<Sample> {
    let mut sample = Sample::from([
        (Metric::Iops, mixed.iops),
        (Metric::BytesPerS, mixed.bw_bytes),
        (Metric::LatencyUsP50, mixed.clat_ns.percentile_us("50.000000")?),
        (Metric::LatencyUsP90, mixed.clat_ns.percentile_us("90.000000")?),
        (Metric::LatencyUsP99, mixed.clat_ns.percentile_us("99.000000")?),
        (Metric::LatencyUsP999, mixed.clat_ns.percentile_us("99.900000")?),
        (Metric::LatencyUsP9999, mixed.clat_ns.percentile_us("99.990000")?),
        (Metric::LatencyUsMax, mixed.clat_ns.max / 1e3),
    ]);
    // fio reports no submit time for engines with blocking calls.
    if mixed.slat_ns.max > 0.0 {
        sample.extend([
            (Metric::SubmitUsMean, mixed.slat_ns.mean / 1e3),
            (Metric::SubmitUsP50, mixed.slat_ns.percentile_us("50.000000")?),
            (Metric::SubmitUsP99, mixed.slat_ns.percentile_us("99.000000")?),
            (Metric::SubmitUsP999, mixed.slat_ns.percentile_us("99.900000")?),
            (Metric::SubmitUsP9999, mixed.slat_ns.percentile_us("99.990000")?),
            (Metric::SubmitUsMax, mixed.slat_ns.max / 1e3),
        ]);
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../testdata/fio.json");

    fn parse(text: &str) -> Result<Parsed> {
        parse_jobs(text).map(|mut jobs| jobs.remove(0))
    }

    #[test]
    fn a_missing_fio_says_what_to_install() {
        let error = version(Path::new("/nonexistent/fio")).expect_err("not there");
        assert!(error.to_string().contains("apt install fio"), "{error}");
    }

    #[test]
    fn figures_are_found_and_converted() {
        let parsed = parse(GOOD).expect("the sample is valid");
        assert_eq!((parsed.ios, parsed.bytes), (100_000.0, 409_600_000.0));
        let expected = [
            (Metric::Iops, 50_000.0),
            (Metric::BytesPerS, 204_800_000.0),
            (Metric::SubmitUsMean, 21.500_25),
            (Metric::SubmitUsP50, 19.84),
            (Metric::SubmitUsP99, 42.752),
            (Metric::SubmitUsP999, 288.768),
            (Metric::SubmitUsP9999, 301.056),
            (Metric::SubmitUsMax, 900.0),
            (Metric::LatencyUsP50, 378.88),
            (Metric::LatencyUsP90, 612.352),
            (Metric::LatencyUsP99, 856.064),
            (Metric::LatencyUsP999, 35_389.44),
            (Metric::LatencyUsP9999, 38_535.168),
            (Metric::LatencyUsMax, 46_143.195),
        ];
        assert_eq!(parsed.sample, Sample::from(expected));
    }

    #[test]
    fn an_engine_that_blocks_has_no_time_inside_submit() {
        let blocks = GOOD.replacen("\"max\" : 900000", "\"max\" : 0", 1);
        let sample = parse(&blocks).expect("the sample is valid").sample;
        assert!(!sample.contains_key(&Metric::SubmitUsMean));
        assert_eq!(sample[&Metric::Iops], 50_000.0);
    }

    #[test]
    fn a_failed_job_is_an_error_with_its_cause() {
        let text = GOOD.replace("\"error\" : 0", "\"error\" : 22");
        let error = parse(&text).expect_err("EINVAL");
        assert!(error.to_string().contains("Invalid argument"), "{error}");
    }

    #[test]
    fn anything_else_is_an_error_and_no_panic() {
        for end in 0..GOOD.len() {
            // The whole object ends at the last brace, so every shorter text is broken.
            if GOOD.is_char_boundary(end) && end < GOOD.trim_end().len() {
                assert!(parse(&GOOD[..end]).is_err(), "cut at {end}");
            }
        }
        assert!(parse("").is_err());
        assert!(parse("}{\n").is_err());
        assert!(parse(&GOOD.replace("99.900000", "99.000001")).is_err());
        assert!(parse(&GOOD.replace("\"total_ios\" : 100000", "\"total_ios\" : 0")).is_err());
    }
}
