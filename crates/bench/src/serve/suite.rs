//! Runs the cases: every server on the same image, interleaved.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cases::{Case, On, Subject};
use super::charge::Charge;
use super::client::{self, Run};
use super::mounted::Mounted;
use super::server::Served;
use crate::cache;
use crate::error::{BenchError, Context, Result};
use crate::host::Host;
use crate::interleave::interleave;
use crate::interrupt;
use crate::layout::TestFile;
use crate::metric::{Metric, Sample};
use crate::progress::Progress;
use crate::runs::Runs;
use crate::stats;
use crate::verdict;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<&'static Case>,
    pub(crate) subjects: Vec<(&'static str, Subject)>,
    pub(crate) rounds: usize,
    pub(crate) runtime: Duration,
    pub(crate) size_bytes: u64,
    pub(crate) folder: PathBuf,
    /// Drop the page cache of the whole machine before a run, not only the pages of the image.
    pub(crate) drop_caches: bool,
    pub(crate) keep: bool,
    /// The tool itself.
    pub(crate) nowait: PathBuf,
}

/// What came out.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) host: Host,
    pub(crate) rounds: usize,
    pub(crate) runtime_s: f64,
    pub(crate) size_bytes: u64,
    /// Whether the whole page cache was dropped before each run, or only the pages of the image.
    pub(crate) caches_dropped: bool,
    pub(crate) cases: Vec<(&'static Case, Runs)>,
    pub(crate) notes: Vec<String>,
}

/// What figures that are published are of, at least.
const PUBLISHED_S: f64 = 5.0;

impl Results {
    /// Tells whether the runs were too short or too few to be published.
    pub(crate) fn is_quick(&self) -> bool {
        self.runtime_s < PUBLISHED_S || self.rounds < verdict::ROUNDS_MIN
    }
}

/// Measures.
///
/// # Errors
/// fio is missing, an image cannot be laid out, or a run failed.
pub(crate) fn measure(plan: &Plan) -> Result<Results> {
    interrupt::install();
    let fio = Command::new("fio").arg("--version").output();
    let fio = fio.context(|| "cannot start fio; install it".to_owned())?;
    let version = String::from_utf8_lossy(&fio.stdout).trim().to_owned();
    std::fs::create_dir_all(&plan.folder).context(|| plan.folder.display().to_string())?;
    let scratch = tempfile::tempdir().context(|| "temporary folder".to_owned())?;
    let mut notes = Vec::new();
    let subjects: Vec<_> = plan.subjects.iter().filter(|one| works(one, &mut notes)).collect();
    let progress = Progress::new();
    let image = TestFile::new(plan.folder.join("image"), plan.keep);
    let size_bytes = image.lay_out(plan.size_bytes, 0, &|_| true, &|written| {
        progress.laying_out(written, plan.size_bytes);
    })?;
    for case in &plan.cases {
        let runtime_s = plan.runtime.as_secs_f64();
        let able = subjects.iter().filter(|one| case.takes(one.1));
        able.for_each(|one| progress.expect(case.name, one.0, plan.rounds, runtime_s));
    }
    progress.start_runs();
    let drop_caches = plan.drop_caches;
    let mut cases = Vec::new();
    let mut caches: Vec<(&str, Vec<f64>)> = subjects.iter().map(|s| (s.0, vec![])).collect();
    for case in &plan.cases {
        let able: Vec<_> = subjects.iter().copied().filter(|one| case.takes(one.1)).collect();
        if able.is_empty() {
            notes.push(format!("{} was not measured: it wants a file or a device", case.name));
            continue;
        }
        let outcome = interleave(&able, plan.rounds, |round, (name, subject)| {
            progress.start(case.name, name, round);
            cache::make_cold(image.path(), drop_caches)?;
            let (path, seed) = (image.path(), round as u64 + 1);
            let run = Run { case, image: path, size_bytes, runtime: plan.runtime, seed };
            let (sample, cached) = one(&run, *subject, &plan.nowait, scratch.path())
                .map_err(|error| BenchError::failed(format!("{name}, {}: {error}", case.name)))?;
            let of = caches.iter_mut().find(|cache_of| cache_of.0 == *name);
            of.into_iter().for_each(|cache_of| cache_of.1.push(cached));
            progress.finish_run();
            Ok(sample)
        })?;
        cases.push((*case, able.iter().map(|subject| subject.0).zip(outcome).collect()));
        if interrupt::happened() {
            break;
        }
    }
    for (name, cached) in caches {
        let most = cached.iter().copied().fold(0.0, f64::max) / 1e6;
        let median = stats::median(&cached).unwrap_or(0.0) / 1e6;
        notes.push(format!(
            "{name}: {median:.1} MB of the image in the kernel's page cache after a run, at most \
             {most:.1}"
        ));
    }
    let runtime_s = plan.runtime.as_secs_f64();
    let host = Host::describe(&plan.folder, &version);
    let rounds = plan.rounds;
    let caches_dropped = drop_caches;
    Ok(Results { host, rounds, runtime_s, size_bytes, caches_dropped, cases, notes })
}

/// Tells whether the server can be had, and notes if it cannot.
fn works((name, subject): &(&'static str, Subject), notes: &mut Vec<String>) -> bool {
    let lacks = match subject {
        Subject::Qemu(..) => lacks_program("qemu-nbd"),
        Subject::Nbdkit => lacks_program("nbdkit"),
        Subject::QemuFuse => lacks_program("qemu-storage-daemon").or_else(lacks_fuse),
        Subject::NowaitFuse => lacks_fuse(),
        Subject::Loop(_) => lacks_loop(),
        Subject::Nowait(_) | Subject::File => None,
    };
    if let Some(why) = &lacks {
        notes.push(format!("{name} was not measured: {why}"));
    }
    lacks.is_none()
}

fn lacks_program(program: &str) -> Option<String> {
    let there = Command::new(program).arg("--version").output().is_ok();
    (!there).then(|| format!("{program} is not installed"))
}

fn lacks_fuse() -> Option<String> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device.err().map(|error| format!("/dev/fuse: {error}"))
}

fn lacks_loop() -> Option<String> {
    let device = File::options().read(true).write(true).open("/dev/loop-control");
    device.err().map(|error| format!("/dev/loop-control: {error}"))
}

/// Makes one run; returns its figures, and how many bytes of the image are then in the kernel's
/// page cache, which had none before.
///
/// How much the page cache has grown is what was cached for the server from when it was there on,
/// or for the whole machine, Buffers too; in an ext4, which has a cache of its own, it is what
/// there is of the image.
fn one(run: &Run<'_>, subject: Subject, nowait: &Path, folder: &Path) -> Result<(Sample, f64)> {
    // Dropped behind the server, whose cgroup it is.
    let charge;
    let served = Served::start(subject, nowait, run.image, folder)?;
    client::read_into_memory();
    charge = Charge::begin(served.pid());
    let parsed = match run.case.on {
        On::Disk => client::run(run, &served.target())?,
        On::Ext4 => {
            let mounted = Mounted::new(&served.target(), folder)?;
            client::run(run, &mounted.target())?
        }
    };
    let grown = charge.growth();
    let cached = cached_bytes(run.image);
    let mut sample = parsed.sample;
    if let Some(used) = served.stop()? {
        // Its start and end count too: a few milliseconds of a run.
        sample.insert(Metric::CpuUsPerIo, used.cpu_us / parsed.ios);
        sample.insert(Metric::ContextSwitchesPerIo, used.switches / parsed.ios);
        sample.insert(Metric::RssBytesMax, used.rss_bytes_max);
    }
    let growth = if run.case.on == On::Disk { grown } else { cached };
    if growth.is_finite() {
        sample.insert(Metric::PageCacheGrowthBytes, growth);
    }
    Ok((sample, cached))
}

/// Returns how much of `image` is in the kernel's page cache.
fn cached_bytes(image: &Path) -> f64 {
    let mut fincore = Command::new("fincore");
    let output = fincore.args(["--bytes", "--noheadings", "--output=RES"]).arg(image).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(f64::NAN)
}
