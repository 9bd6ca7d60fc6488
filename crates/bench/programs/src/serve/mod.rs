//! `bench serve`: servers of the same image take turns, with the same client.
//!
//! ```text
//!  cases.toml ─► ServeSuite ─► server   started by its command of the table, waited for, ended
//!                    └───────► fio      on the export, or on the file or device that is shown
//! ```

mod server;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use nowait_harness::args::{Defaults, DiskArgs, Extent, MeasureArgs};
use nowait_harness::case::Case;
use nowait_harness::cases::{Job, table};
use nowait_harness::error::{Context, Result};
use nowait_harness::layout::TestFile;
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::suite::{Description, Run, Session, Suite};
use nowait_harness::{cache, fio, launch};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use self::server::Served;
use crate::served;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Shows {
    /// The command is an NBD server on the socket `{place}`.
    Nbd,
    /// The command shows the image as the file `{place}`, by FUSE.
    File,
    /// The command attaches a loop device, and prints its name.
    Device,
    /// There is no server: the client opens the image itself.
    Image,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Engine {
    shows: Shows,
    #[serde(default)]
    command: Vec<String>,
}

/// The work of the client: fio's `--rw` and `--bs`, [`DEPTH`] requests in flight.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    rw: String,
    block_bytes: u64,
}

const DEPTH: u32 = 32;

type ServeJob = Job<Engine, Work>;

fn cases() -> Vec<Case<ServeJob>> {
    table(include_str!("cases.toml"))
}

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
        })
    })
}

struct ServeSuite {
    fio: String,
    image: TestFile,
    folder: PathBuf,
    scratch: TempDir,
    drop_caches: bool,
}

impl Suite for ServeSuite {
    type Job = ServeJob;

    fn is_case_by_case(&self) -> bool {
        true
    }

    fn prepare(&mut self, cases: &mut Vec<Case<ServeJob>>, session: &mut Session) -> Result<()> {
        session.leave_possible(cases, |_, subject| lack(&subject.job.engine));
        session.lay_out(&self.image)
    }

    fn run(&mut self, it: Run<'_, ServeJob>, session: &mut Session) -> Result<Sample> {
        cache::make_cold(self.image.path(), self.drop_caches)?;
        let Extent { size_bytes, runtime, .. } = session.extent;
        let Job { engine, work } = &it.subject.job;
        let job = format!(
            "--time_based --norandommap --rw={} --bs={} --iodepth={DEPTH} --randseed={} \
             --runtime={}ms",
            work.rw,
            work.block_bytes,
            it.seed(),
            runtime.as_millis()
        );
        let served = Served::start(engine, self.image.path(), self.scratch.path())?;
        let parsed = served.target().ask(&job, size_bytes, runtime)?;
        let mut sample = parsed.sample;
        sample.extend(cached_bytes(self.image.path()).map(|it| (Metric::PageCacheGrowthBytes, it)));
        if let Some(used) = served.stop()? {
            // The figures of the server include its start and end, a few milliseconds of a run.
            sample.insert(Metric::CpuUsPerIo, used.cpu_us / parsed.ios);
            sample.insert(Metric::ContextSwitchesPerIo, used.switches / parsed.ios);
            sample.insert(Metric::RssBytesMax, used.rss_bytes_max);
        }
        Ok(sample)
    }

    fn describe(&mut self, _results: &[CaseResults], session: &mut Session) -> Description {
        let params = json!({
            "quick": session.is_quick(),
            "depth": DEPTH,
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

fn lack(engine: &Engine) -> Option<String> {
    let program = engine.command.first().and_then(|name| launch::lack(&served::program(name)));
    program.or_else(|| match engine.shows {
        Shows::File => lack_of("/dev/fuse"),
        Shows::Device => lack_of("/dev/loop-control"),
        Shows::Nbd | Shows::Image => None,
    })
}

fn lack_of(device: &str) -> Option<String> {
    let opened = File::options().read(true).write(true).open(device);
    opened.err().map(|error| format!("{device}: {error}"))
}

/// Returns the bytes of `image` in the kernel's page cache, which had none before the run.
fn cached_bytes(image: &Path) -> Option<f64> {
    let mut fincore = Command::new("fincore");
    fincore.args(["--bytes", "--noheadings", "--output=RES"]).arg(image);
    String::from_utf8(fincore.output().ok()?.stdout).ok()?.trim().parse().ok()
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
        assert_eq!((all.len(), all[0].subjects.len()), (4, 10));
        let some = selection(&["--case", "read-4k", "--engine", "nowait,nbdkit"]).expect("valid");
        assert_eq!((some.len(), some[0].subjects.len()), (1, 2));
        assert_eq!(selection(&["--case", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
        assert_eq!(selection(&["--engine", "x"]).map_err(|error| error.exit_code()).err(), Some(2));
    }
}
