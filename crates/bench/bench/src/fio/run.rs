//! One run of fio: its command line, its environment, and its figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nowait_harness::case::Subject;
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::{fio, launch, seccomp};

use super::job::{FioJob, Start, Way, Work};

const OF_LIBAIO: &str = "--userspace_reap";

/// Returns the work of a run that measures fio's start-up: one request, which waits for nothing.
fn startup() -> Work {
    Work { start: Start::Absent, depth: 1, random_map: false, ..Work::default() }
}

#[derive(Debug, Clone)]
pub(crate) struct Fio {
    program: PathBuf,
    pub(crate) version: String,
    /// The path of `libnowait_preload.so`. Only the ways that preload the library need it.
    preload: Option<PathBuf>,
}

/// The cost of the start and the end of a way. [`Fio::run`] subtracts it: fio sets itself up for
/// some 100 ms, which would dilute the figures of short runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Startup {
    pub(crate) cpu_us: f64,
    pub(crate) switches: f64,
    /// The report of the library (`NOWAIT_REPORT`), if it wrote one.
    pub(crate) report: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) way: &'a Way,
    pub(crate) work: &'a Work,
    pub(crate) paths: &'a [PathBuf],
    /// The number of bytes to work on: the sum of all files.
    pub(crate) size_bytes: u64,
    pub(crate) runtime: Duration,
    /// Seed of the order of blocks; the same for all subjects of a round.
    pub(crate) seed: u64,
    pub(crate) purpose: Purpose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Measure,
    WritePattern,
    /// fio verifies the bytes that the job reads, and after the job those that it wrote.
    Verify,
}

pub(crate) struct Measured {
    pub(crate) sample: Sample,
    pub(crate) bytes: f64,
}

impl Fio {
    pub(crate) fn find(program: &Path, preload: Option<PathBuf>) -> Result<Self> {
        let version = fio::version(program)?;
        Ok(Self { program: program.to_owned(), version, preload })
    }

    pub(crate) fn probe(&self, subject: &Subject<FioJob>, scratch: &Path) -> Result<Startup> {
        let (file, report) = (scratch.join("probe"), scratch.join("report"));
        fs::write(&file, vec![0x5a; 64 << 10]).context(|| format!("write {}", file.display()))?;
        let work = startup();
        let run = Run {
            way: &subject.job.engine,
            work: &work,
            paths: std::slice::from_ref(&file),
            size_bytes: work.block_bytes,
            runtime: Duration::from_secs(10),
            seed: 1,
            purpose: Purpose::Measure,
        };
        let mut usages = Vec::new();
        for _ in 0..3 {
            let mut command = self.command(&run)?;
            if run.way.preloads() {
                command.env("NOWAIT_REPORT", &report);
            }
            usages.push(fio::run_one(&mut command, run.runtime)?.1);
        }
        usages.sort_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
        let said = fs::read_to_string(&report).ok();
        // A file that cannot be removed stays in a temporary folder.
        let _ = (fs::remove_file(&file), fs::remove_file(&report));
        Ok(Startup { cpu_us: usages[1].cpu_us, switches: usages[1].switches, report: said })
    }

    pub(crate) fn run(&self, run: &Run<'_>, startup: &Startup) -> Result<Measured> {
        let (parsed, usage) = fio::run_one(&mut self.command(run)?, run.runtime)?;
        let mut sample = parsed.sample;
        let per_io = |total: f64, start: f64| (total - start).max(0.0) / parsed.ios;
        sample.insert(Metric::CpuUsPerIo, per_io(usage.cpu_us, startup.cpu_us));
        sample.insert(Metric::ContextSwitchesPerIo, per_io(usage.switches, startup.switches));
        sample.insert(Metric::DiskReadPerByte, usage.disk_read_bytes / parsed.bytes);
        sample.insert(Metric::OtherBusyCores, usage.other_us / usage.wall_us);
        usage.memory(&mut sample);
        Ok(Measured { sample, bytes: parsed.bytes })
    }

    /// Brings fio and its libraries back into the page cache after all caches were dropped.
    /// Otherwise the measured run would count these reads as its own.
    pub(crate) fn load(&self, way: &Way) -> Result<()> {
        let mut command = self.launched(way)?;
        launch::run(command.arg("--version"), Duration::from_mins(2)).map(drop)
    }

    fn command(&self, run: &Run<'_>) -> Result<Command> {
        let mut command = self.launched(run.way)?;
        command.args(arguments(run));
        Ok(command)
    }

    /// The command inherits no `NOWAIT_*`, `LD_PRELOAD` or `LD_LIBRARY_PATH`.
    fn launched(&self, way: &Way) -> Result<Command> {
        let mut command = fio::command(&self.program);
        if way.preloads() {
            let library = self.preload.as_ref().ok_or_else(|| {
                Failure::new("libnowait_preload.so is not there; build it or pass --dist")
            })?;
            command.env("LD_PRELOAD", library);
        }
        command.envs(&way.settings);
        if way.forbids_uring {
            seccomp::forbid_uring(&mut command);
        }
        Ok(command)
    }
}

fn arguments(run: &Run<'_>) -> Vec<String> {
    let work = run.work;
    // In fio's option, a colon separates two files, so a colon in a path is escaped.
    let paths = run.paths.iter().map(|path| path.display().to_string().replace(':', "\\:"));
    let paths: Vec<String> = paths.collect();
    let part_bytes = run.size_bytes / u64::from(work.jobs);
    let measures = run.purpose == Purpose::Measure;
    let flag = |name: &str, value: bool| format!("--{name}={}", u8::from(value));
    let mut arguments = vec![
        "--name=job".to_owned(),
        format!("--filename={}", paths.join(":")),
        format!("--size={part_bytes}"),
        format!("--offset_increment={part_bytes}"),
        format!("--numjobs={}", work.jobs),
        format!("--rw={}", work.rw.word()),
        format!("--bs={}", work.block_bytes),
        format!("--ioengine={}", run.way.engine),
        format!("--iodepth={}", work.depth),
        flag("direct", work.direct),
        flag("invalidate", work.start == Start::Cold),
        // When fio verifies, it must write no block twice: it could verify the block after the
        // first write.
        flag("norandommap", measures && !work.random_map),
        format!("--randseed={}", run.seed),
    ];
    // With a time limit, fio would not verify the blocks that are left when the time is over.
    arguments.extend(measures.then(|| format!("--runtime={}ms", run.runtime.as_millis())));
    let more: &[&str] = match run.purpose {
        Purpose::Measure if work.ends_after_one_lap() => &[],
        Purpose::Measure => &["--time_based"],
        Purpose::WritePattern => &["--verify=crc32c", "--do_verify=0"],
        Purpose::Verify => &["--verify=crc32c", "--verify_fatal=1"],
    };
    let is_libaio = run.way.engine == "libaio";
    let of_work = work.more.iter().map(String::as_str);
    let of_work = of_work.filter(|option| is_libaio || *option != OF_LIBAIO);
    let fixed = ["--thread", "--group_reporting", "--fallocate=none"];
    let sync = work.sync.then_some("--sync=1");
    let fixed = fixed.into_iter().chain(sync).chain(of_work).chain(more.iter().copied());
    arguments.extend(fixed.map(str::to_owned));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::job::{Rw, cases, work};

    fn text(engine: &str, work: &Work, purpose: Purpose, paths: &[&str]) -> String {
        let way = Way { engine: engine.into(), settings: [].into(), forbids_uring: false };
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let (size_bytes, runtime) = (8 << 20, Duration::from_millis(1500));
        let run = Run { way: &way, work, paths: &paths, size_bytes, runtime, seed: 7, purpose };
        arguments(&run).join(" ") + " "
    }

    #[test]
    fn a_job_has_the_options_that_it_needs_and_no_others() {
        let cases = cases("submit");
        let of =
            |name: &str| work(cases.iter().find(|case| case.name == name).expect("a case")).clone();
        let (measure, verify) = (Purpose::Measure, Purpose::Verify);
        let files = Work {
            rw: Rw::RandWrite,
            jobs: 2,
            files: 2,
            more: vec!["--sync=dsync".to_owned()],
            ..startup()
        };
        let files = Work { start: Start::Cached, ..files };
        let two: &[&str] = &["/x/a", "/x/b"];
        let reap = Work { more: vec![OF_LIBAIO.to_owned()], ..startup() };
        let table: [(&str, String, &[&str], &[&str]); 6] = [
            (
                "a cold read never reads a block twice",
                text("io_uring", &of("a"), measure, &["/x/a:b"]),
                &["filename=/x/a\\:b", "ioengine=io_uring", "bs=65536", "iodepth=64"],
                &["time_based", "sync=1", "norandommap=1", "invalidate=0"],
            ),
            (
                "a file that is extended is written once",
                text("libaio", &of("e-extend"), measure, &["/x/a"]),
                &["fallocate=none", "runtime=1500ms", "randseed=7"],
                &["time_based"],
            ),
            (
                "a part of the files for each thread",
                text("libaio", &files, measure, two),
                &["filename=/x/a:/x/b", "size=4194304", "offset_increment=4194304", "time_based"],
                &["verify=crc32c", "norandommap=0"],
            ),
            (
                "a verified job writes no block twice",
                text("libaio", &files, verify, two),
                &["verify=crc32c", "norandommap=0", "sync=dsync"],
                &["time_based", "runtime=1500ms"],
            ),
            ("libaio's option", text("libaio", &reap, measure, two), &["userspace_reap"], &[]),
            ("… is its own", text("io_uring", &reap, measure, two), &[], &["userspace_reap"]),
        ];
        for (what, text, has, lacks) in table {
            let is_there = |option: &&&str| text.contains(&format!("--{option} "));
            assert_eq!(has.iter().filter(is_there).count(), has.len(), "{what}: {text}");
            assert_eq!(lacks.iter().find(is_there), None, "{what}: {text}");
        }
    }
}
