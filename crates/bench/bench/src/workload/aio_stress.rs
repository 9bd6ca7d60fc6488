//! `bench aio-stress`: the six rows of the source's table, uncached.

use clap::Args;

use super::args::CommonArgs;
use super::job::{Recipe, Transfer, Work};
use super::run;
use crate::case::{Case, Subject, Target};
use crate::error::{BenchError, Result};
use crate::measurement::Measurement;
use crate::metric::Metric;
use crate::offsets::Access;
use crate::peers::registry::EngineDef;
use crate::units::parse_size;

const EXAMPLES: &str = "\
Examples:
  nowait bench aio-stress --quick                     six rows, every engine, small
  nowait bench aio-stress --engine nowait-user,libaio,io_uring --case random-read
  nowait bench aio-stress --device /mnt/xfs/test --record 4k --depth 256
  nowait bench aio-stress --device ram                a file in memory";

/// Measures streams of reads and writes of an uncached file, as aio-stress does.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct AioStressArgs {
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "64k", value_parser = parse_size)]
    pub record: u64,

    /// Requests in flight at most
    #[arg(long, value_name = "N", default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub depth: u16,

    /// Requests that are made, and waited for, in one iteration
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub iterations: u16,

    /// Requests in one call that submits, at most
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub batch: u16,

    /// Carry out one run; a measurement calls itself with this
    #[arg(long, value_name = "JSON", hide = true)]
    pub one: Option<String>,

    /// Engines, device, length and reports
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Every engine but for the modes of submit.
pub(crate) const DEFAULT: &[&str] = &[
    "libaio",
    "nowait-user",
    "nowait-host",
    "libaio-nowait",
    "io_uring",
    "posixaio",
    "threads",
    "psync",
    "mmap",
    "nowait-direct",
    "libaio-direct",
    "io_uring-direct",
    "io_uring-registered",
    "null",
];

/// A row of the source: name, write, sync, random, and its figures.
struct RowDef(&'static str, bool, bool, bool, &'static str);

const ROWS: [RowDef; 6] = [
    RowDef("random-read", false, false, true, "10.08 → 23.91 MB/s (O_DIRECT 18.91)"),
    RowDef("random-osync-write", true, true, true, "8.86 → 15.84 MB/s (O_DIRECT 16.51)"),
    RowDef("sequential-read", false, false, false, "31.49 → 33.00 MB/s (O_DIRECT 31.86)"),
    RowDef("sequential-osync-write", true, true, false, "8.68 → 32.60 MB/s (O_DIRECT 31.45)"),
    RowDef("random-write", true, false, true, "31.09 → 30.90 MB/s (synced 19.65 → 19.65)"),
    RowDef("sequential-write", true, false, false, "30.84 → 30.09 MB/s (synced 28.94 → 28.39)"),
];

const COLUMNS: &[Metric] = &[
    Metric::BytesPerS,
    Metric::SubmitUsMean,
    Metric::SubmitUsP999,
    Metric::SubmitUsP9999,
    Metric::SubmitUsMax,
    Metric::LatencyUsP99,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

const COLUMNS_SYNCED: &[Metric] = &[
    Metric::BytesPerS,
    Metric::BytesPerSSynced,
    Metric::SubmitUsMean,
    Metric::SubmitUsP999,
    Metric::SubmitUsP9999,
    Metric::SubmitUsMax,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

/// How requests are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) record_bytes: usize,
    pub(crate) depth: usize,
    pub(crate) iterations: usize,
    pub(crate) batch: usize,
}

impl Shape {
    /// The workload of the source.
    pub(crate) const SOURCE: Self =
        Self { record_bytes: 64 << 10, depth: 64, iterations: 8, batch: 8 };
}

/// Runs the rows, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, the user
/// asked to stop, or `--check` was given and a target is not met.
pub(crate) fn run_aio_stress(args: &AioStressArgs) -> Result<Option<Measurement>> {
    if let Some(one) = &args.one {
        return run::run(one).map(|()| None);
    }
    if args.record == 0 || !args.record.is_multiple_of(512) || args.record > 64 << 20 {
        return Err(BenchError::usage("--record must be a multiple of 512, at most 64M"));
    }
    let shape = Shape {
        record_bytes: args.record as usize,
        depth: usize::from(args.depth),
        iterations: usize::from(args.iterations.min(args.depth)),
        batch: usize::from(args.batch.min(args.depth)),
    };
    let engines = args.common.engines(DEFAULT)?;
    args.common.run("aio-stress", cases(&engines, shape))
}

/// Makes the six rows.
pub(crate) fn cases(engines: &[&'static EngineDef], shape: Shape) -> Vec<Case<Recipe>> {
    ROWS.iter().map(|row| case(row, engines, shape)).collect()
}

fn case(row: &RowDef, engines: &[&'static EngineDef], shape: Shape) -> Case<Recipe> {
    let RowDef(name, write, sync, random, source) = *row;
    let fsync = write && !sync;
    let transfer = Transfer {
        write_percent: if write { 100 } else { 0 },
        access: if random { Access::Random } else { Access::Sequential },
        block_bytes: shape.record_bytes,
        fsync,
        depth: shape.depth,
        refill: shape.iterations,
        batch: shape.batch,
        ..Transfer::SINGLE
    };
    let able = engines.iter().filter(|engine| engine.writes() || !write);
    let subject = |engine: &&'static EngineDef| {
        // An engine that cannot overlap requests has one at a time, with a buffer in the
        // processor's cache.
        let depth = if engine.is_synchronous() { 1 } else { transfer.depth };
        let own = Transfer { depth, refill: transfer.refill.min(depth), ..transfer };
        let job = Recipe { sync, ..Recipe::new(engine, Work::Transfer(own)) };
        Subject { name: engine.name, engine: (engine.name, engine.about), job }
    };
    let subjects: Vec<Subject<Recipe>> = able.map(subject).collect();
    Case {
        name,
        title: format!("{}, {} KiB records", name.replace('-', " "), shape.record_bytes >> 10),
        about: "",
        source: source.to_owned(),
        columns: if fsync { COLUMNS_SYNCED } else { COLUMNS },
        targets: targets(&subjects, fsync),
        subjects,
    }
}

/// Our page cache, which is what a program of the API gets by default, is ahead of every peer; what
/// nowait does with the kernel's is shown beside it. Where the writes are not durable, what counts
/// is the time until they are.
fn targets(subjects: &[Subject<Recipe>], fsync: bool) -> Vec<Target> {
    let metric = if fsync { Metric::BytesPerSSynced } else { Metric::BytesPerS };
    let peers = subjects.iter().map(|subject| subject.job.engine);
    let peers = peers.filter(|engine| !engine.is_native() && engine.name != "null");
    let peers = peers.filter(|engine| !engine.name.contains("nowait"));
    peers.map(|peer| Target::at_least(metric, "nowait-user", 1.0, peer.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Against;
    use crate::peers::registry;

    #[test]
    fn the_rows_are_those_of_the_source() {
        let engines = registry::find_all(DEFAULT).expect("known");
        let cases = cases(&engines, Shape::SOURCE);
        assert_eq!(cases.len(), 6);
        assert!(cases[0].has("mmap") && !cases[1].has("mmap"), "mmap only reads");
        assert!(cases[0].targets.iter().all(|target| target.metric == Metric::BytesPerS));
        assert!(cases[5].targets.iter().all(|target| target.metric == Metric::BytesPerSSynced));
        let is_ours = |target: &Target| match target.against {
            Against::Subject(name) => name.contains("nowait"),
            Against::Own(_) | Against::Bytes(_) | Against::Count(_) | Against::Microseconds(_) => {
                true
            }
        };
        assert!(!cases[0].targets.iter().any(is_ours));
    }
}
