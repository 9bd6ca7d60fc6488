//! Runs the cases: every server on the same image, interleaved.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::cases::{self, Job, On, Server};
use super::charge::Charge;
use super::client::{self, Run};
use super::mounted::Mounted;
use super::server::Served;
use crate::args::{DiskArgs, Extent};
use crate::cache;
use crate::case::Case;
use crate::error::{BenchError, Context, Result};
use crate::host::Host;
use crate::interrupt;
use crate::layout::TestFile;
use crate::measurement::{Measurement, Pairs};
use crate::metric::{Metric, Sample};
use crate::progress::Progress;
use crate::runner;
use crate::server;
use crate::stats;
use crate::verdict;

/// What figures that are published are of, at least.
const PUBLISHED_S: f64 = 5.0;

/// Measures.
///
/// # Errors
/// fio is missing, an image cannot be laid out, or a run failed.
pub(crate) fn measure(
    mut cases: Vec<Case<Job>>,
    extent: &Extent,
    disk: &DiskArgs,
    keep: bool,
) -> Result<Measurement> {
    let fio = Command::new("fio").arg("--version").output();
    let fio = fio.context(|| "cannot start fio; install it".to_owned())?;
    let version = String::from_utf8_lossy(&fio.stdout).trim().to_owned();
    let nowait = server::nowait_serve();
    std::fs::create_dir_all(&disk.dir).context(|| disk.dir.display().to_string())?;
    let scratch = tempfile::tempdir().context(|| "temporary folder".to_owned())?;
    let mut notes = Vec::new();
    leave_possible(&mut cases, &mut notes);
    let progress = Progress::new();
    let image = TestFile::new(disk.dir.join("image"), keep);
    let Extent { rounds, runtime, size_bytes } = *extent;
    image.lay_out(size_bytes, 0, &|_| true, &|written| progress.laying_out(written, size_bytes))?;
    runner::expect(&progress, &cases, rounds, |_| runtime.as_secs_f64());
    progress.start_runs();
    let (runtime_s, drop_caches) = (runtime.as_secs_f64(), disk.drops_caches());
    let quick = runtime_s < PUBLISHED_S || rounds < verdict::ROUNDS_MIN;
    let (mut measured, mut caches) = (Vec::new(), BTreeMap::<&str, Vec<f64>>::new());
    for case in &cases {
        let one_case = std::slice::from_ref(case);
        let runs = runner::measure(&progress, one_case, rounds, |case, subject, round| {
            cache::make_cold(image.path(), drop_caches)?;
            let (path, seed) = (image.path(), round as u64 + 1);
            let run = Run { job: &subject.job, image: path, size_bytes, runtime, seed };
            let (sample, cached) = one(&run, &nowait, scratch.path()).map_err(|error| {
                BenchError::failed(format!("{}, {}: {error}", subject.name, case.name))
            })?;
            caches.entry(subject.name).or_default().push(cached);
            Ok(Some(sample))
        })?;
        measured.extend(runs.into_iter().map(|runs| cases::results(case, runs, extent, quick)));
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
    let params = json!({
        "rounds": rounds,
        "runtime_s": runtime_s,
        // Shorter or fewer than runs that are published.
        "quick": quick,
        "size_bytes": size_bytes,
        "depth": 32,
        "page_cache": match drop_caches {
            true => "dropped before each run",
            false => "pages of the image dropped before each run",
        },
    });
    Ok(Measurement {
        pairs: Pairs::FirstWith,
        notes,
        words: (String::new(), "CPU and switches are those of the server. "),
        ..Measurement::new("serve", Host::describe(&disk.dir, &version), params, measured)
    })
}

/// Leaves the servers that can be had, and cases that have some; notes the others.
fn leave_possible(cases: &mut Vec<Case<Job>>, notes: &mut Vec<String>) {
    let mut missing: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for case in cases.iter_mut() {
        case.subjects.retain(|subject| {
            let why = missing.entry(subject.name).or_insert_with(|| lacks(subject.job.server));
            why.is_none()
        });
    }
    let why =
        |(name, why): (&str, Option<String>)| Some(format!("{name} was not measured: {}", why?));
    notes.extend(missing.into_iter().filter_map(why));
    cases.retain(|case| {
        if case.subjects.is_empty() {
            notes.push(format!("{} was not measured: no server of it is left", case.name));
        }
        !case.subjects.is_empty()
    });
}

/// Says why a server cannot be had, if it cannot.
fn lacks(server: Server) -> Option<String> {
    match server {
        Server::Qemu(..) => lacks_program("qemu-nbd"),
        Server::Nbdkit => lacks_program("nbdkit"),
        Server::QemuFuse => lacks_program("qemu-storage-daemon").or_else(|| lacks_device("fuse")),
        Server::NowaitFuse => lacks_device("fuse"),
        Server::Loop(_) => lacks_device("loop-control"),
        Server::Nowait(_) | Server::File => None,
    }
}

fn lacks_program(program: &str) -> Option<String> {
    let there = Command::new(program).arg("--version").output().is_ok();
    (!there).then(|| format!("{program} is not installed"))
}

fn lacks_device(name: &str) -> Option<String> {
    let path = PathBuf::from("/dev").join(name);
    let device = File::options().read(true).write(true).open(&path);
    device.err().map(|error| format!("{}: {error}", path.display()))
}

/// Makes one run; returns its figures, and how many bytes of the image are then in the kernel's
/// page cache, which had none before.
///
/// How much the page cache has grown is what was cached for the server from when it was there on,
/// or for the whole machine, Buffers too; in an ext4, which has a cache of its own, it is what
/// there is of the image.
fn one(run: &Run<'_>, nowait: &Path, folder: &Path) -> Result<(Sample, f64)> {
    // Dropped behind the server, whose cgroup it is.
    let charge;
    let served = Served::start(run.job.server, nowait, run.image, folder)?;
    client::read_into_memory();
    charge = Charge::begin(served.pid());
    let parsed = match run.job.on {
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
    let growth = if run.job.on == On::Disk { grown } else { cached };
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
