//! `bench kv`: KV caches of language models between memory and a disk.
//!
//! ```text
//!  cases.toml ─► KvSuite ─┬─ needs      the packages of each way
//!                         ├─ tier       one run of a tier of vLLM's, its folder prepared
//!                         └─ programs::python::nixl     one run of NIXL
//!
//!  drivers/kv_tier.py     plays vLLM's scheduler, which calls the tier
//! ```

mod needs;
mod tier;

use std::path::PathBuf;

use clap::Args;
use nowait_harness::args::{Defaults, DiskArgs, MeasureArgs, found_in_dist};
use nowait_harness::cache;
use nowait_harness::case::Case;
use nowait_harness::cases::{self, table};
use nowait_harness::error::{Context, Result};
use nowait_harness::layout::TestFile;
use nowait_harness::measurement::{CaseResults, Measurement};
use nowait_harness::metric::Sample;
use nowait_harness::suite::{Description, Run, Session, Suite};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use self::needs::Needs;
use crate::programs::python::PythonArgs;
use crate::programs::run::{self, Tools};
use crate::programs::{self, absolute};

const EXAMPLES: &str = "\
Five rounds of 10 s on 4G, or until all is moved; with --quick 2 s on 512M. Engines are tiers, and
ways to run NIXL. Those whose packages are not there are left out. Only --install downloads
anything: vLLM and PyTorch take 6 GB, less if PIP_EXTRA_INDEX_URL has a PyTorch without CUDA.

Examples:
  nowait bench kv --install --quick            every case, short
  nowait bench kv --list                       all cases, with their engines and targets
  nowait bench kv --case 'load*,store*' --engine vllm,nowait
  nowait bench kv --case 'nixl*' --json nixl.json";

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [10_000, 2000],
    size_bytes: [4 << 30, 512 << 20],
    least_bytes: 64 << 20,
};

/// A guess of the time of a run beside its runtime, until runs show it: vLLM is imported.
const OVERHEAD_S: f64 = 10.0;

/// Measures tiers of KV caches under vLLM's interface, and NIXL, with and without nowait.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct KvArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The disk of the caches
    #[command(flatten)]
    pub disk: DiskArgs,

    /// Folder with `lib/libnowait_preload.so` [default: beside this program, or dist]
    #[arg(long, value_name = "FOLDER")]
    pub dist: Option<PathBuf>,

    /// Folder with the wheel of python/examples/vllm
    #[arg(long, value_name = "FOLDER", default_value = "dist/wheels")]
    pub wheels: PathBuf,

    /// Python's packages
    #[command(flatten)]
    pub python: PythonArgs,
}

/// The mover of the blocks.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mover {
    /// A secondary tier of vLLM's, by its configuration without the folder.
    Tier(Map<String, Value>),
    Nixl(programs::Way),
}

/// A way to move blocks; `forbids_uring` of a tier: a filter refuses `io_uring` with EPERM.
#[derive(Debug, Clone, Deserialize)]
struct Way {
    #[serde(default)]
    forbids_uring: bool,
    #[serde(flatten)]
    mover: Mover,
}

/// Which way blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    Load,
    Store,
    /// Half of the requests load, and half store.
    Mixed,
}

/// The work of a case.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Work {
    /// `in_flight` requests at a time, of eight blocks each.
    Tier { direction: Direction, block_bytes: u64, in_flight: u32 },
    /// `count` blocks a transfer; `direction` is `READ` or `WRITE`.
    Nixl { direction: String, block_bytes: u64, count: u64 },
}

type Job = cases::Job<Way, Work>;

fn cases() -> Vec<Case<Job>> {
    table(include_str!("cases.toml"))
}

/// Runs the cases, prints a table for each, and writes the reports asked for.
///
/// Returns `None` when it was only asked for a list.
///
/// # Errors
/// Something is missing that every case needs, runs failed, a report cannot be written, or
/// `--check` was given and a target is not met.
pub fn run_kv(args: &KvArgs) -> Result<Option<Measurement>> {
    let cases = args.measure.select_subjects(cases())?;
    args.measure.measure(&DEFAULTS, cases, |cases, _| KvSuite::new(args, cases))
}

struct KvSuite {
    needs: Needs,
    tools: Tools,
    /// The file of NIXL's cases.
    data: TestFile,
    _removed_on_drop: TempDir,
}

impl KvSuite {
    fn new(args: &KvArgs, cases: &[Case<Job>]) -> Result<Self> {
        let preload = match cases.iter().any(preloads) {
            true => found_in_dist(args.dist.as_deref(), "lib/libnowait_preload.so")?,
            false => PathBuf::new(),
        };
        let asked = absolute(&args.disk.dir)?;
        std::fs::create_dir_all(&asked).context(|| format!("create {}", asked.display()))?;
        let scratch = tempfile::tempdir_in(&asked);
        let scratch = scratch.context(|| format!("write in {}", asked.display()))?;
        let python = args.python.folder(&asked)?;
        let kept = if args.measure.keep { &asked } else { scratch.path() };
        Ok(Self {
            needs: Needs::new(&python, &absolute(&args.wheels)?, args.python.install),
            data: TestFile::new(kept.join("nowait-bench.data"), args.measure.keep),
            tools: Tools {
                preload,
                timer: None,
                folder: scratch.path().to_owned(),
                asked: args.disk.dir.clone(),
                kept: kept.to_owned(),
                drop_caches: args.disk.drops_caches(),
                python,
            },
            _removed_on_drop: scratch,
        })
    }

    fn run_of<'a>(&'a self, way: &'a programs::Way, seed: u64, session: &Session) -> run::Run<'a> {
        run::Run {
            tools: &self.tools,
            way,
            data: &self.data,
            fresh: &self.data,
            size_bytes: session.extent.size_bytes,
            runtime: session.extent.runtime,
            seed,
        }
    }
}

impl Suite for KvSuite {
    type Job = Job;

    fn is_case_by_case(&self) -> bool {
        true
    }

    fn prepare(&mut self, cases: &mut Vec<Case<Job>>, session: &mut Session) -> Result<()> {
        session.leave_possible(cases, |_, subject| self.needs.lack(&subject.job.engine.mover));
        Ok(())
    }

    fn planned_s(&self, _case: &Case<Job>, session: &Session) -> f64 {
        session.extent.runtime.as_secs_f64() + OVERHEAD_S
    }

    fn begin(&mut self, case: &Case<Job>, session: &mut Session) -> Result<()> {
        match case.subjects[0].job.work {
            Work::Tier { .. } => tier::begin(&self.tools.folder),
            Work::Nixl { .. } => session.lay_out(&self.data),
        }
    }

    fn run(&mut self, it: Run<'_, Job>, session: &mut Session) -> Result<Sample> {
        let Job { engine, work } = &it.subject.job;
        match (&engine.mover, work) {
            (Mover::Nixl(way), Work::Nixl { direction, block_bytes, count }) => {
                let run = self.run_of(way, it.seed(), session);
                programs::python::nixl(&run, direction, *block_bytes, *count)
            }
            (Mover::Tier(config), Work::Tier { direction, block_bytes, in_flight }) => {
                let way = tier::way(engine.forbids_uring);
                let run = self.run_of(&way, it.seed(), session);
                tier::Tier { config, block_bytes: *block_bytes, in_flight: *in_flight }
                    .run(&run, *direction)
            }
            _ => unreachable!("a test of the table demands one kind a case"),
        }
    }

    fn describe(&mut self, _results: &[CaseResults], session: &mut Session) -> Description {
        let params = json!({
            "quick": session.is_quick(),
            "folder": self.tools.asked.display().to_string(),
            "caches_dropped": self.tools.drop_caches,
            "page_cache": cache::state(self.tools.drop_caches),
        });
        Description::new("kv", &self.tools.asked, params)
    }
}

fn preloads(case: &Case<Job>) -> bool {
    let is = |mover: &Mover| matches!(mover, Mover::Nixl(way) if way.preloads);
    case.subjects.iter().any(|subject| is(&subject.job.engine.mover))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::metric::Metric;
    use nowait_harness::testing::{check, parse};

    #[test]
    fn every_case_has_engines_of_its_kind_and_the_first_is_not_ours() {
        check(&cases());
        for case in cases() {
            assert!(!case.subjects[0].name.contains("nowait"), "{}", case.name);
            assert_eq!(case.columns[0], Metric::BytesPerS, "{}", case.name);
            for subject in &case.subjects {
                let job = &subject.job;
                let fits = matches!(
                    (&job.engine.mover, &job.work),
                    (Mover::Tier(_), Work::Tier { .. }) | (Mover::Nixl(_), Work::Nixl { .. })
                );
                assert!(fits, "{}, {}", case.name, subject.name);
            }
        }
    }

    #[test]
    fn the_filter_is_in_the_name_of_an_engine() {
        let subjects = cases().into_iter().flat_map(|case| case.subjects);
        for subject in subjects {
            let forbids = match &subject.job.engine.mover {
                Mover::Nixl(way) => way.forbids_uring,
                Mover::Tier(_) => subject.job.engine.forbids_uring,
            };
            assert_eq!(forbids, subject.name.contains("no-uring"), "{}", subject.name);
        }
    }

    #[test]
    fn cases_and_engines_can_be_chosen() {
        let select =
            |arguments: &[&str]| parse::<KvArgs>(arguments).measure.select_subjects(cases());
        let some = select(&["--case", "load*", "--engine", "vllm,nowait"]).expect("valid");
        assert!(some.iter().all(|case| case.subjects.len() == 2));
        let exit_code = |arguments: &[&str]| select(arguments).map_err(|it| it.exit_code()).err();
        assert_eq!(exit_code(&["--case", "teapot"]), Some(2));
        assert_eq!(exit_code(&["--case", "load*", "--engine", "aio"]), Some(2));
    }
}
