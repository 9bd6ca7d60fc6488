//! `bench programs`: programs as their users install them, with and without nowait.
//!
//! ```text
//!  Table ─► measure ─► Programs ─┬─ need       what a case needs, and how to install it
//!  cases.toml                    ├─ run        one run: its files, its preloads, its filter
//!  kv::KV                        │   └─ qemu, mariadb, …  each program's commands and results
//!                                └─ overview   all cases as one table
//!
//!  drivers/               programs in other languages, compiled or run here
//!    submit_timer.c         the time inside io_submit, for programs that do not report it  ◄ timer
//!    caio_reads.py          an asyncio program, and how late its event loop comes
//!    nixl_transfers.py      transfers of NIXL's POSIX plugin
//! ```

mod gap;
mod mariadb;
pub(crate) mod need;
mod nginx;
mod overview;
pub(crate) mod python;
mod qemu;
pub(crate) mod run;
mod sysbench;
mod thin;
mod timer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use nowait_harness::args::{Defaults, DiskArgs, MeasureArgs, found_in_dist};
use nowait_harness::case::{Case, ITSELF, ITSELF_POSIX};
use nowait_harness::cases::{self, table};
use nowait_harness::error::{Context, Result};
use nowait_harness::layout::{TestFile, scratch_in};
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::Sample;
use nowait_harness::runs::Runs;
use nowait_harness::suite::{self, Description, Session, Suite};
use nowait_harness::{cache, units};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use self::need::Lack;
use self::overview::Skipped;
use self::python::{Packages, PythonArgs};
use self::run::{Run, Tools};
use self::timer::Timer;
use crate::kv::tier::Tier;

pub const EXAMPLES: &str = "\
Five rounds of 10 s on files of 2G; with --quick 1 s on 256M. Engines are ways to run a program.
A program that is not there is skipped, with the command that installs it; only --install
downloads anything, and only Python's packages, into a folder of their own.

Examples:
  nowait bench programs --quick                 every program that is there
  nowait bench programs --list                  all cases, with their ways and targets
  nowait bench programs --case qemu-sparse-4k --html qemu.html
  nowait bench programs --case c,n --install    NIXL and Python's caio, installed for this
  nowait bench programs --engine system,nowait";

pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) cases: fn() -> Vec<Case<Job>>,
    pub(crate) defaults: Defaults,
    pub(crate) pairs: Pairs,
    /// The report begins with a table of the first four columns of all cases.
    pub(crate) has_overview: bool,
}

const PROGRAMS: Table = Table {
    name: "programs",
    cases,
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [10_000, 1000],
        size_bytes: [2 << 30, 256 << 20],
        least_bytes: 64 << 20,
    },
    pairs: Pairs::With(&[ITSELF, "io_uring", ITSELF_POSIX]),
    has_overview: true,
};

/// How programs are run.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The disk of the programs' files
    #[command(flatten)]
    pub disk: DiskArgs,

    /// Folder with `lib/libnowait_preload.so` [default: beside this program, or dist]
    #[arg(long, value_name = "FOLDER")]
    pub dist: Option<PathBuf>,

    /// Python's packages
    #[command(flatten)]
    pub python: PythonArgs,
}

/// The interface by which a program does its I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// `io_submit`.
    Aio,
    /// `aio_read` and its like.
    PosixAio,
    /// The program's own `io_uring` mode.
    Uring,
    Threads,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Way {
    pub(crate) mode: Mode,
    #[serde(default)]
    pub(crate) preloads: bool,
    /// A filter refuses `io_uring` with EPERM.
    #[serde(default)]
    pub(crate) forbids_uring: bool,
    /// The configuration of a tier of vLLM's, without its folder.
    #[serde(default)]
    pub(crate) tier: Map<String, Value>,
}

/// The work of a program. `in_container`: a filter refuses `io_uring` in all ways of the case, as
/// in a container.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Work {
    #[serde(default)]
    in_container: bool,
    #[serde(flatten)]
    pub(crate) load: Load,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Load {
    /// QEMU's block layer writes to a sparse raw image: fio's `--rw` and `--bs`.
    Qemu { rw: String, block_bytes: u64 },
    /// Python's caio reads an uncached file, below an event loop.
    Caio { block_bytes: u64 },
    /// NIXL moves `count` blocks in a transfer: `READ` or `WRITE`.
    Nixl { direction: String, block_bytes: u64, count: u64 },
    /// A tier of vLLM's moves blocks.
    Tier(Tier),
    /// MariaDB serves transactions: its `innodb_flush_method`, and the number of clients.
    Mariadb { flush: String, threads: u32 },
    /// sysbench's own file test reads at random.
    SysbenchFiles { direct: bool },
    /// nginx sends parts of a file that it reads past the page cache.
    Nginx {},
    /// thin_check reads the metadata of a pool.
    Thin {},
}

impl Load {
    /// The library of `timer` measures `io_submit` of programs that do not report that time.
    fn is_timed(&self) -> bool {
        !matches!(self, Self::Caio { .. } | Self::Nixl { .. } | Self::Tier(_) | Self::Nginx {})
    }
}

pub(crate) type Job = cases::Job<Way, Work>;

fn cases() -> Vec<Case<Job>> {
    let mut cases: Vec<Case<Job>> = table(include_str!("cases.toml"));
    for job in cases.iter_mut().flat_map(|case| &mut case.subjects).map(|it| &mut it.job) {
        job.engine.forbids_uring |= job.work.in_container;
    }
    cases
}

pub fn run_programs(args: &RunArgs) -> Result<Option<Measurement>> {
    measure(&PROGRAMS, args, PathBuf::new())
}

/// `wheels` is the folder with the wheel of `python/examples/vllm`.
pub(crate) fn measure(
    table: &'static Table,
    args: &RunArgs,
    wheels: PathBuf,
) -> Result<Option<Measurement>> {
    let cases = args.measure.select_subjects((table.cases)())?;
    args.measure
        .measure(&table.defaults, cases, |cases, _| Programs::new(table, args, wheels, cases))
}

struct Programs {
    table: &'static Table,
    tools: Tools,
    data: TestFile,
    fresh: TestFile,
    skipped: Vec<Skipped>,
    _removed_on_drop: TempDir,
}

impl Programs {
    fn new(
        table: &'static Table,
        args: &RunArgs,
        wheels: PathBuf,
        cases: &[Case<Job>],
    ) -> Result<Self> {
        let preloads =
            cases.iter().flat_map(|case| &case.subjects).any(|it| it.job.engine.preloads);
        let preload = match preloads {
            true => found_in_dist(args.dist.as_deref(), "lib/libnowait_preload.so")?,
            false => PathBuf::new(),
        };
        let asked = absolute(&args.disk.dir)?;
        let scratch = scratch_in(&asked)?;
        let folder = scratch.path().to_owned();
        let packages = Packages::new(args.python.folder(&asked)?, wheels, args.python.install);
        let kept = if args.measure.keep { asked } else { folder.clone() };
        Ok(Self {
            table,
            data: TestFile::new(kept.join("nowait-bench.data"), args.measure.keep),
            fresh: TestFile::new(folder.join("nowait-bench.fresh"), false),
            tools: Tools {
                preload,
                timer: None,
                folder,
                asked: args.disk.dir.clone(),
                kept,
                drop_caches: args.disk.drops_caches(),
                packages,
            },
            skipped: Vec::new(),
            _removed_on_drop: scratch,
        })
    }

    /// Lists as skipped the ways whose interface the filter refuses, which is the filter's purpose.
    fn skip_refused(&mut self, session: &mut Session) {
        let tables = (self.table.cases)();
        let subjects = tables.iter().flat_map(|case| {
            case.subjects
                .iter()
                .map(move |subject| ((case.name, subject.name), &subject.job.engine))
        });
        for (place, way) in subjects {
            let refused = way.mode == Mode::Uring && way.forbids_uring;
            let Some(why) = session.failed.get(&place).filter(|_| refused).cloned() else {
                continue;
            };
            session.failed.remove(&place);
            let (why, (case, engine)) = (format!("refused by the filter ({why})"), place);
            session.notes.push(format!("{case}, {engine}: {why}"));
            let lack = Lack { why, install: String::new() };
            self.skipped.push(Skipped { case, engine, lack });
        }
    }
}

impl Suite for Programs {
    type Job = Job;

    fn is_case_by_case(&self) -> bool {
        true
    }

    fn prepare(&mut self, cases: &mut Vec<Case<Job>>, session: &mut Session) -> Result<()> {
        let packages = &mut self.tools.packages;
        let left_out = session.leave_possible(cases, |_, subject| {
            need::lack(&subject.job.work.load, &subject.job.engine, packages)
        });
        let skipped = left_out.into_iter();
        self.skipped = skipped.map(|(case, engine, lack)| Skipped { case, engine, lack }).collect();
        if cases.iter().any(|case| case.subjects[0].job.work.load.is_timed()) {
            match Timer::build(&self.tools.folder) {
                Ok(timer) => self.tools.timer = Some(timer),
                Err(why) => session.notes.push(format!(
                    "the time inside io_submit was not measured: {why}; apt install gcc libc6-dev"
                )),
            }
        }
        if !cases.is_empty() {
            session.notes.push(gap_note(session.extent.runtime));
        }
        Ok(())
    }

    fn begin(&mut self, case: &Case<Job>, session: &mut Session) -> Result<()> {
        run::prepare(&case.subjects[0].job.work.load, &self.tools, &self.data, session)
    }

    fn run(&mut self, it: suite::Run<'_, Job>, session: &mut Session) -> Result<Sample> {
        let run = Run {
            tools: &self.tools,
            way: &it.subject.job.engine,
            data: &self.data,
            fresh: &self.fresh,
            size_bytes: session.extent.size_bytes,
            runtime: session.extent.runtime,
            seed: it.seed(),
        };
        run.make(&it.subject.job.work.load)
    }

    fn results(&mut self, case: &Case<Job>, runs: Runs, session: &mut Session) -> CaseResults {
        let names = || json!({ "overview": overview::names(case.columns) });
        let params = if self.table.has_overview { names() } else { Value::Null };
        CaseResults { how: session.how(), ..CaseResults::new(case, runs, params) }
    }

    fn describe(&mut self, results: &[CaseResults], session: &mut Session) -> Description {
        self.skip_refused(session);
        let params = json!({
            "quick": session.is_quick(),
            "folder": self.tools.asked.display().to_string(),
            "caches_dropped": self.tools.drop_caches,
            "page_cache": cache::state(self.tools.drop_caches),
            "skipped": self.skipped,
        });
        let overview = match self.table.has_overview {
            true => overview::text(results, &self.skipped),
            false => String::new(),
        };
        Description {
            pairs: self.table.pairs,
            words: (overview, ""),
            ..Description::new(self.table.name, &self.tools.asked, params)
        }
    }
}

fn gap_note(period: Duration) -> String {
    let longest = units::time_us(gap::longest(period).as_secs_f64() * 1e6);
    let seconds = units::digits(period.as_secs_f64());
    format!(
        "before the first run, threads that only looked at the clock, as many as processors, did \
         not run for up to {longest} within {seconds} s: what the machine adds to a longest \
         hold-up under a load that fills it"
    )
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::metric::Metric::{CpuUsPerOperation, HeldUpUsMax, LatencyUsP99};
    use nowait_harness::testing::{check, parse};

    #[test]
    fn every_case_compares_a_program_with_itself_and_has_the_columns_of_the_overview() {
        check(&cases());
        for case in cases() {
            assert_eq!(case.subjects[0].name, ITSELF, "{}", case.name);
            assert!(case.subjects.iter().any(|it| it.job.engine.preloads), "{}", case.name);
            assert_eq!(case.columns[1..4], [LatencyUsP99, HeldUpUsMax, CpuUsPerOperation]);
            assert!(case.columns[0].more_is_better() && !case.about.is_empty(), "{}", case.name);
        }
    }

    #[test]
    fn everything_in_a_container_is_under_the_filter() {
        let cases = cases();
        assert_eq!(cases[0].name, "container-nixl-read-64k", "the case to show first");
        for case in &cases {
            let is_container = case.name.starts_with("container-");
            let all = case.subjects.iter().all(|it| it.job.engine.forbids_uring);
            assert_eq!(all, is_container, "{}", case.name);
        }
    }

    #[test]
    fn cases_and_ways_can_be_chosen() {
        let select =
            |arguments: &[&str]| parse::<RunArgs>(arguments).measure.select_subjects(cases());
        let some = select(&["--case", "qemu-sparse-4k", "--engine", "system,nowait"]);
        let some = some.expect("valid");
        assert_eq!((some.len(), some[0].subjects.len()), (1, 2));
        let exit_code = |arguments: &[&str]| select(arguments).map_err(|it| it.exit_code()).err();
        assert_eq!(exit_code(&["--case", "emacs"]), Some(2));
        assert_eq!(exit_code(&["--engine", "windows"]), Some(2));
    }
}
