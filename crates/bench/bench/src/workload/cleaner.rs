//! `bench cleaner`: one page cleaner with asynchronous I/O against many without.

use clap::Args;

use super::args::CommonArgs;
use super::job::{Cleaner, Recipe, Work};
use crate::case::{Case, Subject, Target, name};
use crate::error::Result;
use crate::measurement::Measurement;
use crate::metric::Metric;
use crate::peers::registry::{self, EngineDef};

const EXAMPLES: &str = "\
Examples:
  nowait bench cleaner                                raw and buffered, as the source has them
  nowait bench cleaner --case raw-few --rounds 9      a disk with room for more
  nowait bench cleaner --agents 50 --pool-pages 8192 --case raw
  nowait bench cleaner --engine nowait-direct,libaio-direct --rounds 9";

/// Measures page cleaners of a database: agents change pages, cleaners write them back.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CleanerArgs {
    /// Agents, a thread each, which carry out transactions; in raw-few a 25th of them
    #[arg(long, value_name = "N", default_value = "200")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=2000))]
    pub agents: u16,

    /// Pages of 8 KiB that the pool has
    #[arg(long, value_name = "N", default_value = "2048")]
    #[arg(value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub pool_pages: u32,

    /// Writes that a cleaner with asynchronous I/O has in flight at most
    #[arg(long, value_name = "N", default_value = "256")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub depth: u16,

    /// Engines, device, length and reports
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Parameters that the source does not give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) agents: usize,
    pub(crate) pool_pages: usize,
    pub(crate) depth: usize,
}

impl Shape {
    /// As simulated, too.
    pub(crate) const DEFAULT: Self = Self { agents: 200, pool_pages: 2048, depth: 256 };
}

const RAW: &[&str] = &["nowait-direct", "libaio-direct", "io_uring-direct"];
const BUFFERED: &[&str] = &["nowait-user", "nowait-host", "libaio", "io_uring"];

const COLUMNS: &[Metric] = &[
    Metric::TransactionsPerS,
    Metric::WrittenByCleaners,
    Metric::Iops,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

/// Synchronous cleaners of the source's raw case.
const SYNC: usize = 55;
/// In the case of few, one part in so many of agents and synchronous cleaners: a disk that serves a
/// request in a fraction of a millisecond is busy with 200 agents in either way, while that of the
/// source had room for more.
const FEW: usize = 25;

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, the user
/// asked to stop, or `--check` was given and a target is not met.
pub(crate) fn run_cleaner(args: &CleanerArgs) -> Result<Option<Measurement>> {
    let shape = Shape {
        agents: usize::from(args.agents),
        pool_pages: args.pool_pages as usize,
        depth: usize::from(args.depth),
    };
    let engines = args.common.engines(&[RAW, BUFFERED].concat())?;
    args.common.run("cleaner", cases(&engines, shape)?)
}

/// The engines of all cases.
pub(crate) fn default_engines() -> Result<Vec<&'static EngineDef>> {
    registry::find_all(&[RAW, BUFFERED].concat())
}

/// Makes the cases: direct engines are in the raw ones, others in the buffered one.
pub(crate) fn cases(engines: &[&'static EngineDef], shape: Shape) -> Result<Vec<Case<Recipe>>> {
    let of = |direct: bool| -> Vec<&'static EngineDef> {
        let able = engines.iter().copied().filter(|engine| engine.writes());
        able.filter(|engine| engine.direct == direct && !engine.is_synchronous()).collect()
    };
    let raw = "relative throughput 122 → 133 (×1.09), written by cleaners 70 → 100 %";
    let buffered = "relative throughput 100 → 113.7 (×1.14), written by cleaners 37 → 100 %";
    let direct = registry::find("psync-direct")?;
    let few = Shape { agents: (shape.agents / FEW).max(1), ..shape };
    Ok(vec![
        case("raw", raw, &of(true), (direct, SYNC, 1), 1.09, shape),
        case("raw-few", raw, &of(true), (direct, SYNC / FEW, 1), 1.09, few),
        case("buffered", buffered, &of(false), (registry::find("psync")?, 5, 5), 1.137, shape),
    ])
}

fn case(
    name_of_case: &'static str,
    source: &str,
    engines: &[&'static EngineDef],
    (sync, sync_count, aio_count): (&'static EngineDef, usize, usize),
    ratio: f64,
    shape: Shape,
) -> Case<Recipe> {
    let subject = |engine: &'static EngineDef, cleaners: usize, depth: usize| {
        let Shape { agents, pool_pages, .. } = shape;
        let work = Work::Cleaner(Cleaner { cleaners, depth, agents, pool_pages });
        Subject {
            name: name(format!("{}-{cleaners}", engine.name)),
            engine: (engine.name, engine.about),
            job: Recipe { sync: name_of_case == "buffered", ..Recipe::new(engine, work) },
        }
    };
    let baseline = subject(sync, sync_count, 1);
    let against = baseline.name;
    let mut subjects = vec![baseline];
    subjects.extend(engines.iter().map(|engine| subject(engine, aio_count, shape.depth)));
    // The first of ours: what a program of the API gets by default.
    let ours = subjects.iter().find(|s| s.job.engine.is_native()).map(|s| s.name);
    let targets = ours.into_iter().flat_map(|ours| {
        [
            Target::at_least(Metric::TransactionsPerS, ours, ratio, against),
            Target::at_least(Metric::WrittenByCleaners, ours, 1.0, against),
        ]
    });
    let targets = targets.collect();
    Case {
        name: name_of_case,
        title: format!(
            "{} agents, pool of {} pages: {sync_count} sync → {aio_count} AIO cleaners",
            shape.agents, shape.pool_pages
        ),
        source: source.to_owned(),
        about: "",
        columns: COLUMNS,
        subjects,
        targets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaners_and_agents_are_fewer_in_the_same_proportion() {
        let engines = default_engines().expect("known");
        let cases = cases(&engines, Shape::DEFAULT).expect("made");
        let numbers = |case: &Case<Recipe>| {
            let work = case.subjects[..2].iter().map(|subject| match subject.job.work {
                Work::Cleaner(cleaner) => (cleaner.agents, cleaner.cleaners),
                _ => unreachable!("all are cleaners"),
            });
            work.collect::<Vec<_>>()
        };
        assert_eq!(numbers(&cases[0]), [(200, 55), (200, 1)]);
        assert_eq!(numbers(&cases[1]), [(8, 2), (8, 1)]);
        assert_eq!(numbers(&cases[2]), [(200, 5), (200, 5)]);
        assert!(cases.iter().all(|case| case.targets.len() == 2));
    }
}
