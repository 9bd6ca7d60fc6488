//! `bench kv`: KV caches of language models between memory and a disk, as a table of programs.
//!
//! ```text
//!  cases.toml ─► programs::measure ─┬─ tier              a tier of vLLM's, its folder prepared
//!                                   └─ python::nixl      NIXL
//!
//!  drivers/kv_tier.py     plays vLLM's scheduler, which calls the tier
//! ```

pub(crate) mod tier;

use std::path::PathBuf;

use clap::Args;
use nowait_harness::args::Defaults;
use nowait_harness::case::Case;
use nowait_harness::cases::table;
use nowait_harness::error::Result;
use nowait_harness::measurement::{Measurement, Pairs};

use crate::programs::{self, Job, RunArgs, Table, absolute};

const EXAMPLES: &str = "\
Five rounds of 10 s on 4G, or until all is moved; with --quick 2 s on 512M. Engines are tiers, and
ways to run NIXL. Those whose packages are not there are left out. Only --install downloads
anything: vLLM and PyTorch take 6 GB, less if PIP_EXTRA_INDEX_URL has a PyTorch without CUDA.

Examples:
  nowait bench kv --install --quick            every case, short
  nowait bench kv --list                       all cases, with their engines and targets
  nowait bench kv --case 'load*,store*' --engine vllm,nowait
  nowait bench kv --case 'nixl*' --json nixl.json";

/// Measures tiers of KV caches under vLLM's interface, and NIXL, with and without nowait.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct KvArgs {
    /// How programs are run
    #[command(flatten)]
    pub run: RunArgs,

    /// Folder with the wheel of python/examples/vllm
    #[arg(long, value_name = "FOLDER", default_value = "dist/wheels")]
    pub wheels: PathBuf,
}

const KV: Table = Table {
    name: "kv",
    cases,
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [10_000, 2000],
        size_bytes: [4 << 30, 512 << 20],
        least_bytes: 64 << 20,
    },
    pairs: Pairs::WithFirst,
    has_overview: false,
};

fn cases() -> Vec<Case<Job>> {
    table(include_str!("cases.toml"))
}

pub fn run_kv(args: &KvArgs) -> Result<Option<Measurement>> {
    programs::measure(&KV, &args.run, absolute(&args.wheels)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Load;
    use nowait_harness::metric::Metric;
    use nowait_harness::testing::{check, parse};

    #[test]
    fn every_case_has_engines_of_its_kind_and_the_first_is_not_ours() {
        check(&cases());
        for case in cases() {
            assert!(!case.subjects[0].name.contains("nowait"), "{}", case.name);
            assert_eq!(case.columns[0], Metric::BytesPerS, "{}", case.name);
            for subject in &case.subjects {
                let is_tier = matches!(subject.job.work.load, Load::Tier(_));
                assert_eq!(subject.job.engine.tier.is_empty(), !is_tier, "{}", case.name);
                let forbids = subject.job.engine.forbids_uring;
                assert_eq!(forbids, subject.name.contains("no-uring"), "{}", subject.name);
            }
        }
    }

    #[test]
    fn cases_and_engines_can_be_chosen() {
        let select =
            |arguments: &[&str]| parse::<KvArgs>(arguments).run.measure.select_subjects(cases());
        let some = select(&["--case", "load*", "--engine", "vllm,nowait"]).expect("valid");
        assert!(some.iter().all(|case| case.subjects.len() == 2));
        let exit_code = |arguments: &[&str]| select(arguments).map_err(|it| it.exit_code()).err();
        assert_eq!(exit_code(&["--case", "teapot"]), Some(2));
        assert_eq!(exit_code(&["--case", "load*", "--engine", "aio"]), Some(2));
    }
}
