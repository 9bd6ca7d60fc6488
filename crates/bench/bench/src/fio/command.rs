//! fio's command line, its environment, and the measured run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::launch::Launch;
use nowait_harness::fio::{self, PERCENTILES, Parsed};

use crate::error::{BenchError, Context, Result};
use crate::launch::{self, Usage};
use crate::metric::{Metric, Sample};
use crate::seccomp;
use crate::submit::{Job, Place, Start};

/// What a run may take beyond its runtime: start-up, and draining what is in flight.
const GRACE: Duration = Duration::from_mins(2);

/// Options that only fio's libaio engine knows.
const OF_LIBAIO: &[&str] = &["--userspace_reap"];

/// A job that only starts up: one request, nothing to wait for.
const STARTUP: Job = Job {
    place: Place::Disk,
    start: Start::Absent,
    rw: "read",
    block_bytes: 4 << 10,
    depth: 1,
    direct: false,
    sync: false,
    random_map: false,
    jobs: 1,
    files: 1,
    more: &[],
};

/// The programs of a measurement.
#[derive(Debug, Clone)]
pub(crate) struct Fio {
    program: PathBuf,
    /// Such as `fio-3.33`.
    pub(crate) version: String,
    /// `libnowait_preload.so`; needed only by the subjects that preload.
    preload: Option<PathBuf>,
}

/// What a subject costs before its first and after its last request.
///
/// Subtracted from the processor time and the context switches of a run: fio sets itself up
/// for some 100 ms, which would dilute the figures of short runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Startup {
    pub(crate) cpu_us: f64,
    pub(crate) switches: f64,
    /// What the library says about itself (`NOWAIT_REPORT`), if it says anything.
    pub(crate) report: Option<String>,
}

/// One run to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) launch: Launch,
    pub(crate) job: &'a Job,
    pub(crate) paths: &'a [PathBuf],
    /// Bytes of all files that are worked on.
    pub(crate) size_bytes: u64,
    pub(crate) runtime: Duration,
    /// The same for all subjects of a round: they visit the same blocks.
    pub(crate) seed: u64,
    pub(crate) purpose: Purpose,
}

/// What a run is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Measure,
    /// Writes data that a later run can verify.
    WritePattern,
    /// Verifies what it reads, or reads what it has written and verifies that.
    Verify,
}

/// The figures of a run, and how much it moved.
pub(crate) struct Measured {
    pub(crate) sample: Sample,
    pub(crate) bytes: f64,
}

impl Fio {
    /// Finds fio and the library to preload.
    ///
    /// # Errors
    /// fio cannot be started.
    pub(crate) fn find(program: &Path, preload: Option<PathBuf>) -> Result<Self> {
        let output = Command::new(program).arg("--version").output().map_err(|error| {
            let name = program.display();
            BenchError::failed(format!(
                "cannot start {name} ({error}); install it (apt install fio, dnf install fio) or \
                 name it with --fio"
            ))
        })?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Self { program: program.to_owned(), version, preload })
    }

    /// Checks that a subject really works here, and measures what its start-up costs.
    ///
    /// # Errors
    /// Why it does not work, in one line.
    pub(crate) fn probe(&self, launch: Launch, scratch: &Path) -> Result<Startup> {
        let file = scratch.join("probe");
        let report = scratch.join("report");
        fs::write(&file, vec![0x5a; 64 << 10]).context(|| format!("write {}", file.display()))?;
        let mut usages = Vec::new();
        for _ in 0..3 {
            usages.push(self.start_up_once(launch, &file, &report)?);
        }
        usages.sort_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
        let report_text = fs::read_to_string(&report).ok();
        // What cannot be removed is in a temporary folder anyway.
        let _ = fs::remove_file(&file);
        let _ = fs::remove_file(&report);
        let Usage { cpu_us, switches, .. } = usages[1];
        Ok(Startup { cpu_us, switches, report: report_text })
    }

    fn start_up_once(&self, launch: Launch, file: &Path, report: &Path) -> Result<Usage> {
        let run = Run {
            launch,
            job: &STARTUP,
            paths: &[file.to_owned()],
            size_bytes: STARTUP.block_bytes,
            runtime: Duration::from_secs(10),
            seed: 1,
            purpose: Purpose::Measure,
        };
        let mut command = self.command(&run)?;
        if launch.preloads() {
            command.env("NOWAIT_REPORT", report);
        }
        let (_, usage) = execute(command, &run)?;
        Ok(usage)
    }

    /// Makes one measured run.
    ///
    /// # Errors
    /// fio failed, or said something that is not understood.
    pub(crate) fn run(&self, run: &Run<'_>, startup: &Startup) -> Result<Measured> {
        let (parsed, usage) = execute(self.command(run)?, run)?;
        let mut sample = parsed.sample;
        let per_io = |total: f64, start: f64| (total - start).max(0.0) / parsed.ios;
        sample.insert(Metric::CpuUsPerIo, per_io(usage.cpu_us, startup.cpu_us));
        sample.insert(Metric::ContextSwitchesPerIo, per_io(usage.switches, startup.switches));
        sample.insert(Metric::DiskReadPerByte, usage.disk_read_bytes / parsed.bytes);
        sample.insert(Metric::OtherBusyCores, usage.other_us / usage.wall_us);
        usage.memory(&mut sample);
        Ok(Measured { sample, bytes: parsed.bytes })
    }

    /// Reads the program and its libraries into the page cache, from which they were dropped with
    /// all else: tens of megabytes, which would be read while a run begins, and counted as its own.
    ///
    /// # Errors
    /// fio cannot be started.
    pub(crate) fn load(&self, launch: Launch) -> Result<()> {
        let mut command = self.launched(launch)?;
        launch::run(command.arg("--version"), GRACE).map(drop)
    }

    /// Builds the command of a run.
    fn command(&self, run: &Run<'_>) -> Result<Command> {
        let mut command = self.launched(run.launch)?;
        command.args(arguments(run));
        Ok(command)
    }

    /// Builds the command of a way: nothing inherited that could change a subject into another.
    fn launched(&self, launch: Launch) -> Result<Command> {
        let mut command = Command::new(&self.program);
        launch::inherit_nothing_of_ours(&mut command);
        if launch.preloads() {
            let library = self.preload.as_ref().ok_or_else(|| {
                BenchError::failed("libnowait_preload.so is not there; build it or pass --dist")
            })?;
            command.env("LD_PRELOAD", library);
        }
        command.envs(launch.environment().iter().copied());
        if launch.forbids_uring() {
            seccomp::forbid_uring(&mut command);
        }
        Ok(command)
    }
}

/// Runs fio with its output in a file, and parses that.
fn execute(mut command: Command, run: &Run<'_>) -> Result<(Parsed, Usage)> {
    let output = tempfile::NamedTempFile::new().context(|| "temporary file".to_owned())?;
    command.arg(format!("--output={}", output.path().display()));
    let finished = launch::run(&mut command, run.runtime + GRACE)?;
    let name = run.launch.name();
    let first_line = finished.stderr.lines().find(|line| !line.trim().is_empty());
    if finished.stderr.contains("cannot be preloaded") {
        let line = first_line.unwrap_or_default();
        return Err(BenchError::failed(format!("{name}: {line}")));
    }
    let text = fs::read_to_string(output.path()).context(|| "read fio's output".to_owned())?;
    let parsed = fio::parse(&text);
    if !finished.status.success() {
        let why = parsed.err().map_or_else(String::new, |error| format!(", {error}"));
        let said = first_line.unwrap_or("and said nothing");
        return Err(BenchError::failed(format!("{name}: fio {}{why}: {said}", finished.status)));
    }
    let parsed = parsed.map_err(|error| BenchError::failed(format!("{name}: {error}")))?;
    Ok((parsed, finished.usage))
}

/// Returns fio's arguments, apart from where its output goes.
pub(super) fn arguments(run: &Run<'_>) -> Vec<String> {
    let job = run.job;
    // A colon separates two files.
    let paths = run.paths.iter().map(|path| path.display().to_string().replace(':', "\\:"));
    let paths: Vec<String> = paths.collect();
    let part_bytes = run.size_bytes / u64::from(job.jobs);
    let measures = run.purpose == Purpose::Measure;
    let flag = |name: &str, value: bool| format!("--{name}={}", u8::from(value));
    let mut arguments = vec![
        "--name=job".to_owned(),
        format!("--filename={}", paths.join(":")),
        format!("--size={part_bytes}"),
        format!("--offset_increment={part_bytes}"),
        format!("--numjobs={}", job.jobs),
        format!("--rw={}", job.rw),
        format!("--bs={}", job.block_bytes),
        format!("--ioengine={}", run.launch.engine()),
        format!("--iodepth={}", job.depth),
        flag("direct", job.direct),
        flag("invalidate", job.start == Start::Cold),
        // A block that is written twice could be verified between the two.
        flag("norandommap", measures && !job.random_map),
        format!("--randseed={}", run.seed),
    ];
    if job.sync {
        arguments.push("--sync=1".to_owned());
    }
    // At its end fio would not verify the rest.
    if measures {
        arguments.push(format!("--runtime={}ms", run.runtime.as_millis()));
    }
    if measures && !job.ends_after_one_lap() {
        arguments.push("--time_based".to_owned());
    }
    let fixed = [
        "--thread",
        "--group_reporting",
        "--fallocate=none",
        "--slat_percentiles=1",
        "--clat_percentiles=1",
        PERCENTILES,
        "--unified_rw_reporting=mixed",
        "--output-format=json",
        "--eta=never",
    ];
    let is_libaio = run.launch.engine() == "libaio";
    let more = job.more.iter().filter(|argument| is_libaio || !OF_LIBAIO.contains(argument));
    arguments.extend(fixed.iter().chain(more).map(|&argument| argument.to_owned()));
    let purpose: &[&str] = match run.purpose {
        Purpose::Measure => &[],
        Purpose::WritePattern => &["--verify=crc32c", "--do_verify=0"],
        Purpose::Verify => &["--verify=crc32c", "--verify_fatal=1"],
    };
    arguments.extend(purpose.iter().map(|&argument| argument.to_owned()));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::cases;

    fn arguments_of(case: &str) -> Vec<String> {
        let case =
            cases("submit").into_iter().find(|row| row.name == case).expect("a case of the table");
        let (_, job) = &case.subjects[0].job;
        arguments(&Run {
            launch: Launch::IoUring,
            job,
            paths: &[PathBuf::from("/x/a:b")],
            size_bytes: 1 << 20,
            runtime: Duration::from_millis(1500),
            seed: 7,
            purpose: Purpose::Measure,
        })
    }

    #[test]
    fn a_cold_read_never_reads_a_block_twice() {
        let arguments = arguments_of("a");
        for expected in [
            "--filename=/x/a\\:b",
            "--ioengine=io_uring",
            "--bs=65536",
            "--iodepth=64",
            "--invalidate=1",
            "--norandommap=0",
            "--runtime=1500ms",
            "--randseed=7",
        ] {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected}");
        }
        assert!(!arguments.iter().any(|argument| argument == "--time_based"));
        assert!(!arguments.iter().any(|argument| argument == "--sync=1"));
    }

    #[test]
    fn an_option_of_libaio_is_not_given_to_other_engines() {
        let job = Job { more: OF_LIBAIO, ..STARTUP };
        let has_it = |launch| {
            let run = Run {
                launch,
                job: &job,
                paths: &[PathBuf::from("/x/a")],
                size_bytes: 1 << 20,
                runtime: Duration::from_secs(1),
                seed: 1,
                purpose: Purpose::Measure,
            };
            arguments(&run).iter().any(|it| it == OF_LIBAIO[0])
        };
        assert!(has_it(Launch::Nowait) && !has_it(Launch::IoUring));
    }

    #[test]
    fn a_file_being_extended_is_written_once() {
        let arguments = arguments_of("e-extend");
        assert!(!arguments.iter().any(|argument| argument == "--time_based"));
        assert!(arguments.iter().any(|argument| argument == "--fallocate=none"));
    }

    #[test]
    fn a_verified_job_writes_no_block_twice() {
        let job = Job { rw: "randwrite", jobs: 2, files: 2, more: &["--sync=dsync"], ..STARTUP };
        let paths = [PathBuf::from("/x/a"), PathBuf::from("/x/b")];
        let run = Run {
            launch: Launch::Nowait,
            job: &Job { start: Start::Cached, ..job },
            paths: &paths,
            size_bytes: 8 << 20,
            runtime: Duration::from_secs(1),
            seed: 1,
            purpose: Purpose::Measure,
        };
        let has = |run: &Run<'_>, argument: &str| arguments(run).iter().any(|it| it == argument);
        for expected in ["--filename=/x/a:/x/b", "--size=4194304", "--offset_increment=4194304"] {
            assert!(has(&run, expected), "{expected}");
        }
        assert!(has(&run, "--norandommap=1") && has(&run, "--time_based"));
        assert!(has(&run, "--sync=dsync") && !has(&run, "--verify=crc32c"));
        let verify = Run { purpose: Purpose::Verify, ..run };
        assert!(has(&verify, "--norandommap=0") && !has(&verify, "--time_based"));
        assert!(has(&run, "--runtime=1000ms") && !has(&verify, "--runtime=1000ms"));
        assert!(has(&verify, "--verify=crc32c"));
    }

    #[test]
    fn a_missing_fio_says_what_to_install() {
        let error = Fio::find(Path::new("/nonexistent/fio"), None).expect_err("not there");
        assert!(error.to_string().contains("apt install fio"), "{error}");
    }
}
