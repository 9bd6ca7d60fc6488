//! `bench randrw`: reads and writes of 4 KiB at random places of a buffered file, and how long the
//! caller is inside submit.

use clap::Args;

use super::args::CommonArgs;
use super::job::{Recipe, Transfer, Work};
use crate::case::{Case, Subject, Target};
use crate::error::Result;
use crate::measurement::Measurement;
use crate::metric::Metric;
use crate::peers::registry::EngineDef;

const EXAMPLES: &str = "\
Examples:
  nowait bench randrw                                 uncached, on a disk
  nowait bench randrw --device ram                    in memory
  nowait bench randrw --engine nowait-host,nowait-offload,libaio --rounds 9";

/// Measures the time inside submit of random reads and writes, by mode of submit.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct RandrwArgs {
    /// Engines, device, length and reports
    #[command(flatten)]
    pub common: CommonArgs,
}

pub(crate) const DEFAULT: &[&str] = &[
    "libaio",
    "nowait-offload",
    "nowait-host",
    "libaio-nowait",
    "nowait-user",
    "io_uring",
    "null",
];

const BLOCK_BYTES: usize = 4096;
const DEPTH: usize = 32;

const COLUMNS: &[Metric] = &[
    Metric::SubmitReadUsMean,
    Metric::SubmitWriteUsMean,
    Metric::SubmitUsP999,
    Metric::SubmitUsP9999,
    Metric::SubmitUsMax,
    Metric::Iops,
    Metric::LatencyUsP99,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

/// Runs the job, prints a table and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, the user
/// asked to stop, or `--check` was given and a target is not met.
pub(crate) fn run_randrw(args: &RandrwArgs) -> Result<Option<Measurement>> {
    let ram = args.common.device.as_os_str() == "ram";
    let case = case(&args.common.engines(DEFAULT)?, ram);
    args.common.run("randrw", vec![case])
}

/// Makes the case, for a disk or for memory.
pub(crate) fn case(engines: &[&'static EngineDef], ram: bool) -> Case<Recipe> {
    let transfer =
        Transfer { write_percent: 50, block_bytes: BLOCK_BYTES, depth: DEPTH, ..Transfer::SINGLE };
    let able = engines.iter().filter(|engine| engine.writes());
    let subject = |engine: &&'static EngineDef| {
        let depth = if engine.is_synchronous() { 1 } else { DEPTH };
        let own = Transfer { depth, ..transfer };
        let job = Recipe::new(engine, Work::Transfer(own));
        Subject { name: engine.name, engine: (engine.name, engine.about), job }
    };
    // The mode of submit that users have without choosing one.
    let ours = "nowait-host";
    let source = match ram {
        false => {
            "mean submit of a read 6571.88 → 1.65 µs, of a write 24.66 → 1.85 µs; 151 → 123 \
                  reads/s"
        }
        true => "mean submit 3.46 → 0.38 µs; 122 k → 140 k IOPS (ramdisk)",
    };
    // In memory nothing waits, so that there is less to win: the source's own ratios.
    let submit_ratio = if ram { 0.38 / 3.46 } else { 1.0 / 20.0 };
    let iops_ratio = if ram { 140.0 / 122.0 } else { 1.0 };
    Case {
        name: if ram { "ram" } else { "disk" },
        title: format!("randrw 4 KiB, depth {DEPTH}, one request a call, buffered"),
        source: source.to_owned(),
        about: "",
        columns: COLUMNS,
        subjects: able.map(subject).collect(),
        targets: vec![
            Target::at_most(Metric::SubmitUsMean, ours, submit_ratio, "libaio"),
            Target::at_least(Metric::Iops, ours, iops_ratio, "libaio"),
        ],
    }
}
