//! `bench prefetch`: one prefetcher with asynchronous I/O against many without.

use clap::Args;

use super::args::CommonArgs;
use super::job::{Prefetch, Recipe, Work};
use crate::case::{Case, Subject, Target, name};
use crate::error::Result;
use crate::measurement::Measurement;
use crate::metric::Metric;
use crate::peers::registry::{self, EngineDef};

const EXAMPLES: &str = "\
Examples:
  nowait bench prefetch                               direct and buffered
  nowait bench prefetch --scans 32 --depth 256 --case direct";

/// Measures prefetchers of a database: scans use extents of 256 KiB that others read for them.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct PrefetchArgs {
    /// Scans, a thread each
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub scans: u16,

    /// Reads that a prefetcher with asynchronous I/O has in flight at most
    #[arg(long, value_name = "N", default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub depth: u16,

    /// Engines, device, length and reports
    #[command(flatten)]
    pub common: CommonArgs,
}

const DIRECT: &[&str] = &["nowait-direct", "libaio-direct", "io_uring-direct"];
const BUFFERED: &[&str] = &["nowait-user", "nowait-host", "libaio", "io_uring"];
/// Prefetchers without asynchronous I/O.
const SYNC: usize = 16;
/// An extent of DB2, as the source has it.
const EXTENT_BYTES: usize = 256 << 10;
/// Extents that a scan asks for ahead.
const AHEAD: usize = 8;

const COLUMNS: &[Metric] =
    &[Metric::BytesPerS, Metric::Iops, Metric::CpuUsPerIo, Metric::ContextSwitchesPerIo];

/// Runs both cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, the user
/// asked to stop, or `--check` was given and a target is not met.
pub(crate) fn run_prefetch(args: &PrefetchArgs) -> Result<Option<Measurement>> {
    let engines = args.common.engines(&[DIRECT, BUFFERED].concat())?;
    let (scans, depth) = (usize::from(args.scans), usize::from(args.depth));
    args.common.run("prefetch", cases(&engines, scans, depth)?)
}

/// The engines of both cases.
pub(crate) fn default_engines() -> Result<Vec<&'static EngineDef>> {
    registry::find_all(&[DIRECT, BUFFERED].concat())
}

/// Makes the two cases: direct engines are in the first, others in the second.
pub(crate) fn cases(
    engines: &[&'static EngineDef],
    scans: usize,
    depth: usize,
) -> Result<Vec<Case<Recipe>>> {
    let make = |case_name, sync: &'static str, direct: bool| -> Result<Case<Recipe>> {
        let subject = |engine: &'static EngineDef, prefetchers: usize, depth: usize| Subject {
            name: name(format!("{}-{prefetchers}", engine.name)),
            engine: (engine.name, engine.about),
            job: Recipe::new(
                engine,
                Work::Prefetch(Prefetch {
                    prefetchers,
                    depth,
                    scans,
                    ahead: AHEAD,
                    extent_bytes: EXTENT_BYTES,
                }),
            ),
        };
        let mut subjects = vec![subject(registry::find(sync)?, SYNC, 1)];
        let able = engines.iter().filter(|e| e.direct == direct && !e.is_synchronous());
        subjects.extend(able.map(|engine| subject(engine, 1, depth)));
        // The first of ours: what a program of the API gets by default.
        let ours = subjects.iter().find(|s| s.job.engine.is_native()).map(|s| s.name);
        let against = subjects[0].name;
        let targets = |ours| {
            [
                Target::at_least(Metric::BytesPerS, ours, 1.0, against),
                Target::at_most(Metric::CpuUsPerIo, ours, 1.0, against),
            ]
        };
        Ok(Case {
            name: case_name,
            title: format!("{scans} scans of 256 KiB extents: {SYNC} sync → 1 AIO prefetcher"),
            source: "expected to help decision support; no figure".to_owned(),
            about: "",
            columns: COLUMNS,
            targets: ours.into_iter().flat_map(targets).collect(),
            subjects,
        })
    };
    Ok(vec![make("direct", "psync-direct", true)?, make("buffered", "psync", false)?])
}
