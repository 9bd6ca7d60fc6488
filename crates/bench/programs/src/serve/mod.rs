//! `bench serve`: servers on the same image, by turns, asked by the same client.
//!
//! ```text
//!  cases.toml ─► ServeSuite ─┬─ server    started, waited for, watched (charge), ended
//!                            ├─ mounted   an ext4 on what is served
//!                            └─ client    fio's nbd engine, or fio on a file, device, file system
//! ```

mod charge;
mod client;
mod mounted;
mod server;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use nowait_harness::args::{Defaults, DiskArgs, MeasureArgs};
use nowait_harness::case::Case;
use nowait_harness::cases::{Job, table};
use nowait_harness::error::{Context, Result};
use nowait_harness::layout::TestFile;
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::suite::{Description, Run, Session, Suite};
use nowait_harness::{cache, fio, launch, stats};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use self::charge::Charge;
use self::mounted::Mounted;
use self::server::Served;

const EXAMPLES: &str = "\
Five rounds of 5 s on an image of 1G; with --quick 500 ms, which is for a look only and says so.
Engines are servers.

Examples:
  nowait bench serve --quick                              some two minutes
  nowait bench serve --case read-4k --rounds 9
  nowait bench serve --engine nowait,qemu-native --runtime 10s
  nowait bench serve --engine nowait-fuse,qemu-fuse,loop  the image as a file";

const DEFAULTS: Defaults =
    Defaults { rounds: 5, runtime_ms: [5000, 500], size_bytes: [1 << 30; 2], least_bytes: 0 };

/// Measures servers on the same image, by NBD and as a file, and checks ours against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeBenchArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The disk of the image
    #[command(flatten)]
    pub disk: DiskArgs,
}

/// A server of the image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Server {
    /// `nowait serve --nbd`.
    Nowait,
    /// `nowait serve --fuse`: the image as a file.
    NowaitFuse,
    /// `qemu-nbd`, with these `--cache` and `--aio`.
    Qemu(String, String),
    /// `nbdkit file`: the kernel's page cache and threads.
    Nbdkit,
    /// `qemu-storage-daemon`'s FUSE export: the image as a file, too.
    QemuFuse,
    /// The kernel's loop device, with direct I/O or through the page cache.
    Loop(LoopIo),
    /// None: the client has the file itself, with direct I/O.
    File,
}

/// How a loop device reads and writes its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LoopIo {
    Direct,
    Buffered,
}

#[derive(Debug, Clone, Deserialize)]
struct Engine {
    server: Server,
}

/// The target of the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum On {
    /// The served disk, 32 requests deep, past its own page cache.
    #[default]
    Disk,
    /// Files of an ext4 on that: four jobs, blocking calls, its page cache.
    Ext4,
}

/// The work of the client.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    #[serde(default)]
    on: On,
    /// fio's `--rw`.
    rw: String,
    block_bytes: u64,
}

type ServeJob = Job<Engine, Work>;

fn cases() -> Vec<Case<ServeJob>> {
    table(include_str!("cases.toml"))
}

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed, or a report cannot be written.
pub fn run_serve(args: &ServeBenchArgs) -> Result<Option<Measurement>> {
    let cases = args.measure.select_subjects(cases())?;
    args.measure.measure(&DEFAULTS, cases, |_, _| {
        let folder = &args.disk.dir;
        std::fs::create_dir_all(folder).context(|| folder.display().to_string())?;
        Ok(ServeSuite {
            fio: fio::version(Path::new("fio"))?,
            image: TestFile::new(folder.join("image"), args.measure.keep),
            folder: folder.clone(),
            scratch: tempfile::tempdir().context(|| "temporary folder".to_owned())?,
            drop_caches: args.disk.drops_caches(),
            cached: BTreeMap::new(),
        })
    })
}

struct ServeSuite {
    fio: String,
    image: TestFile,
    folder: PathBuf,
    /// For sockets and files that are mounted.
    scratch: TempDir,
    drop_caches: bool,
    /// Bytes of the image in the kernel's page cache after each run, by server.
    cached: BTreeMap<&'static str, Vec<f64>>,
}

impl Suite for ServeSuite {
    type Job = ServeJob;

    fn is_case_by_case(&self) -> bool {
        true
    }

    fn prepare(&mut self, cases: &mut Vec<Case<ServeJob>>, session: &mut Session) -> Result<()> {
        session.leave_possible(cases, |_, subject| lacks(&subject.job.engine.server));
        session.lay_out(&self.image)
    }

    fn run(&mut self, it: Run<'_, ServeJob>, session: &mut Session) -> Result<Sample> {
        cache::make_cold(self.image.path(), self.drop_caches)?;
        let (size_bytes, runtime) = (session.extent.size_bytes, session.extent.runtime);
        let Job { engine, work } = &it.subject.job;
        let run = client::Run { work, size_bytes, runtime, seed: it.seed() };
        let (sample, cached) = one(&run, &engine.server, self.image.path(), self.scratch.path())?;
        self.cached.entry(it.subject.name).or_default().push(cached);
        Ok(sample)
    }

    fn describe(&mut self, _results: &[CaseResults], session: &mut Session) -> Description {
        session.notes.extend(self.cached.iter().map(|(name, cached)| {
            let most = cached.iter().copied().fold(0.0, f64::max) / 1e6;
            let median = stats::median(cached).unwrap_or(0.0) / 1e6;
            format!(
                "{name}: {median:.1} MB of the image in the kernel's page cache after a run, at \
                 most {most:.1}"
            )
        }));
        let params = json!({
            "quick": session.is_quick(),
            "depth": 32,
            "page_cache": match self.drop_caches {
                true => "dropped before each run",
                false => "pages of the image dropped before each run",
            },
        });
        Description {
            fio: self.fio.clone(),
            pairs: Pairs::FirstWith,
            words: (String::new(), "CPU and switches are those of the server. "),
            ..Description::new("serve", &self.folder, params)
        }
    }
}

/// Says why a server cannot be had, if it cannot.
fn lacks(server: &Server) -> Option<String> {
    match server {
        Server::Qemu(..) => launch::lack(Path::new("qemu-nbd")),
        Server::Nbdkit => launch::lack(Path::new("nbdkit")),
        Server::QemuFuse => {
            launch::lack(Path::new("qemu-storage-daemon")).or_else(|| lacks_device("fuse"))
        }
        Server::NowaitFuse => lacks_device("fuse"),
        Server::Loop(_) => lacks_device("loop-control"),
        Server::Nowait | Server::File => None,
    }
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
fn one(
    run: &client::Run<'_>,
    server: &Server,
    image: &Path,
    folder: &Path,
) -> Result<(Sample, f64)> {
    // Dropped behind the server, whose cgroup it is.
    let charge;
    let served = Served::start(server, image, folder)?;
    client::read_into_memory();
    charge = Charge::begin(served.pid());
    let parsed = match run.work.on {
        On::Disk => client::run(run, &served.target())?,
        On::Ext4 => {
            let mounted = Mounted::new(&served.target(), folder)?;
            client::run(run, &mounted.target())?
        }
    };
    let grown = charge.growth();
    let cached = cached_bytes(image);
    let mut sample = parsed.sample;
    if let Some(used) = served.stop()? {
        // The server's start and end count too: a few milliseconds of a run.
        sample.insert(Metric::CpuUsPerIo, used.cpu_us / parsed.ios);
        sample.insert(Metric::ContextSwitchesPerIo, used.switches / parsed.ios);
        sample.insert(Metric::RssBytesMax, used.rss_bytes_max);
    }
    let growth = if run.work.on == On::Disk { grown } else { cached };
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

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::testing::{check, parse};

    #[test]
    fn the_cases_are_well_formed() {
        check(&cases());
    }

    #[test]
    fn cases_and_servers_can_be_chosen() {
        let selection = |arguments: &[&str]| {
            parse::<ServeBenchArgs>(arguments).measure.select_subjects(cases())
        };
        let all = selection(&[]).expect("valid");
        assert_eq!((all.len(), all[0].subjects.len()), (8, 10));
        let some = selection(&["--case", "read-4k", "--engine", "nowait,nbdkit"]).expect("valid");
        assert_eq!((some.len(), some[0].subjects.len()), (1, 2));
        assert_eq!(selection(&["--case", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
        assert_eq!(selection(&["--engine", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
    }
}
