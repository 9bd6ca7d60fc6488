//! The experiments of the sources, by the rows of the list of mechanisms: M1 aio-stress, M7 vector,
//! M8 rawiobench, M9 randrw.

use std::path::Path;

use nowait_harness::order::Access;
use nowait_peers::job::{Backend, Fsync, Looks, Transfer, Visits, Work};
use nowait_peers::registry::EngineDef;

use super::args::{SuiteDef, WorkloadArgs};
use super::device::{MEMORY, smallest_direct_block};
use super::recipe::{Recipe, case, engine, engines};
use crate::args::Defaults;
use crate::case::{Case, Subject, Target, name};
use crate::error::Result;
use crate::metric::Metric;

pub(crate) const AIO_STRESS: SuiteDef = SuiteDef::new("aio-stress", aio_stress);
pub(crate) const RAWIO: SuiteDef = SuiteDef::new("rawio", |args| {
    let smallest = smallest_direct_block(&args.device).unwrap_or(4096);
    let blocks: Vec<_> = RAW_BLOCKS.into_iter().filter(|(bytes, _)| *bytes >= smallest).collect();
    rawio(&engines(&args.measure.engines, RAW)?, &RAW_KINDS, &blocks)
});
pub(crate) const RANDRW: SuiteDef = SuiteDef::new("randrw", |args| {
    Ok(vec![randrw(&args.measure.engines, args.device == Path::new(MEMORY))?])
});
pub(crate) const VECTOR: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 7,
        runtime_ms: [1000, 300],
        size_bytes: [1 << 30; 2],
        least_bytes: 16 << 20,
    },
    takes_engines: false,
    ..SuiteDef::new("vector", vector)
};

pub(crate) const AIO_STRESS_EXAMPLES: &str = "\
Examples:
  nowait bench aio-stress --quick                     six rows, every engine, small
  nowait bench aio-stress --engine nowait-user,libaio,io_uring --case random-read
  nowait bench aio-stress --device ram                a file in memory";
pub(crate) const RAWIO_EXAMPLES: &str = "\
Examples:
  nowait bench rawio --quick                          every mode and block size, short
  nowait bench rawio --case '*-4k,*-64k' --engine nowait-direct,io_uring-direct
  nowait bench rawio --case random-read-4k --rounds 9
  nowait bench rawio --device /dev/sdx --overwrite    a block device, whose data are lost";
pub(crate) const RANDRW_EXAMPLES: &str = "\
Examples:
  nowait bench randrw                                 uncached, on a disk
  nowait bench randrw --device ram                    in memory
  nowait bench randrw --engine nowait-host,nowait-offload,libaio --rounds 9";
pub(crate) const VECTOR_EXAMPLES: &str = "\
Seven runs of 1 s on a file of 1G; with --quick 300 ms.

Examples:
  nowait bench vector                          8 and 16 segments, in small pages and huge ones
  nowait bench vector --case segments-8 --runtime 300ms --rounds 5 --json vector.json";

/// Returns a transfer that a synchronous engine does one by one, with one buffer in the processor's
/// cache, because it cannot overlap requests.
fn as_it_can(engine: &EngineDef, transfer: Transfer) -> Work {
    let depth = if engine.is_synchronous() { 1 } else { transfer.depth };
    let refill = transfer.refill.min(depth);
    Work::Transfer(Transfer { depth, refill, ..transfer })
}

// M1.

/// Every engine but for the modes of submit.
const STRESSED: &[&str] = &[
    "libaio",
    "nowait-user",
    "nowait-host",
    "io_uring",
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
struct StressRow(&'static str, bool, bool, bool, &'static str);

const STRESS_ROWS: [StressRow; 6] = [
    StressRow("random-read", false, false, true, "10.08 → 23.91 MB/s (O_DIRECT 18.91)"),
    StressRow("random-osync-write", true, true, true, "8.86 → 15.84 MB/s (O_DIRECT 16.51)"),
    StressRow("sequential-read", false, false, false, "31.49 → 33.00 MB/s (O_DIRECT 31.86)"),
    StressRow("sequential-osync-write", true, true, false, "8.68 → 32.60 MB/s (O_DIRECT 31.45)"),
    StressRow("random-write", true, false, true, "31.09 → 30.90 MB/s (synced 19.65 → 19.65)"),
    StressRow("sequential-write", true, false, false, "30.84 → 30.09 MB/s (synced 28.94 → 28.39)"),
];

/// Records of the source, 64 in flight, of which eight are made and waited for in one iteration.
const STRESS: Transfer =
    Transfer { block_bytes: 64 << 10, depth: 64, refill: 8, batch: 8, ..Transfer::SINGLE };

const STRESS_COLUMNS: &[Metric] = &[
    Metric::BytesPerS,
    Metric::SubmitUsMean,
    Metric::SubmitUsP999,
    Metric::SubmitUsP9999,
    Metric::SubmitUsMax,
    Metric::LatencyUsP99,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

const STRESS_COLUMNS_SYNCED: &[Metric] = &[
    Metric::BytesPerS,
    Metric::BytesPerSSynced,
    Metric::SubmitUsMean,
    Metric::SubmitUsP999,
    Metric::SubmitUsP9999,
    Metric::SubmitUsMax,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

/// Makes the six rows of the source, uncached.
pub(super) fn aio_stress(args: &WorkloadArgs) -> Result<Vec<Case<Recipe>>> {
    stress_rows(&args.measure.engines)
}

/// The same for the engines asked for.
pub(super) fn stress_rows(asked: &[String]) -> Result<Vec<Case<Recipe>>> {
    let engines = engines(asked, STRESSED)?;
    Ok(STRESS_ROWS.iter().map(|row| stress_row(row, &engines)).collect())
}

fn stress_row(row: &StressRow, engines: &[&'static EngineDef]) -> Case<Recipe> {
    let StressRow(name, write, sync, random, source) = *row;
    let apart = write && !sync;
    let transfer = Transfer {
        write_percent: if write { 100 } else { 0 },
        access: if random { Access::Random } else { Access::Sequential },
        fsync: if apart { Fsync::Apart } else { Fsync::None },
        ..STRESS
    };
    let able = engines.iter().filter(|engine| engine.writes() || !write);
    let recipe = |engine| Recipe { sync, ..Recipe::new(engine, as_it_can(engine, transfer)) };
    let subjects: Vec<_> = able.map(|engine| recipe(engine).subject()).collect();
    // Our page cache, which is what a program of the API gets by default, is ahead of every peer;
    // what nowait does with the kernel's is shown beside it. Where the writes are not durable, what
    // counts is the time until they are.
    let metric = if apart { Metric::BytesPerSSynced } else { Metric::BytesPerS };
    let peers = subjects.iter().map(|subject| subject.name);
    let peers = peers.filter(|name| !name.contains("nowait") && *name != "null");
    let targets = peers.map(|peer| Target::at_least(metric, "nowait-user", 1.0, peer)).collect();
    let title = format!("{}, 64 KiB records", name.replace('-', " "));
    let columns = if apart { STRESS_COLUMNS_SYNCED } else { STRESS_COLUMNS };
    Case { source: source.to_owned(), targets, ..case(name, title, columns, subjects) }
}

// M7.

/// Chunks in flight at a time, each of so many adjoining blocks.
const CHUNKS: usize = 8;
const VECTORS: [(usize, bool, &str); 4] = [
    (8, false, "segments-8"),
    (16, false, "segments-16"),
    (8, true, "segments-8-huge"),
    (16, true, "segments-16-huge"),
];
/// Name, engine, one request for a chunk, and what it is. The first two are judged.
const VECTOR_WAYS: [(&str, &str, bool, &str); 4] = [
    ("split", "nowait-direct", false, "a request for each block"),
    ("vector", "nowait-direct", true, "one request with a segment for each block"),
    (
        "io_uring-split",
        "io_uring-defer-direct",
        false,
        "the same as split by io_uring, one system call to submit and wait",
    ),
    ("io_uring-vector", "io_uring-defer-direct", true, "the same as vector by io_uring"),
];

fn vector(_: &WorkloadArgs) -> Result<Vec<Case<Recipe>>> {
    VECTORS.iter().map(|case| chunks(*case, &VECTOR_WAYS)).collect()
}

/// Makes the cases of the ways that are judged, held against what a source says.
pub(super) fn vectors_of_source() -> Result<Vec<Case<Recipe>>> {
    let of_source = |case: Case<Recipe>| Case {
        title: "4 KiB blocks that adjoin, direct: a request each (split) → one of all (vector)"
            .to_owned(),
        source: "up to 2 : 1 in CPU time; readv against a loop ÷5".to_owned(),
        columns: &[Metric::BytesPerS, Metric::CpuUsPerIo, Metric::ContextSwitchesPerIo],
        targets: vec![Target::at_most(Metric::CpuUsPerIo, "vector", 0.5, "split")],
        ..case
    };
    VECTORS[..2].iter().map(|case| chunks(*case, &VECTOR_WAYS[..2]).map(of_source)).collect()
}

fn chunks(
    (blocks, huge, name): (usize, bool, &'static str),
    ways: &[(&'static str, &'static str, bool, &'static str)],
) -> Result<Case<Recipe>> {
    let subject = |&(name, opens, whole, about): &(&'static str, _, bool, &'static str)| {
        let work = Work::Transfer(Transfer {
            access: Access::Runs(blocks as u64),
            segments: if whole { blocks } else { 1 },
            one_lap: false,
            depth: CHUNKS * blocks,
            refill: blocks,
            batch: CHUNKS * blocks,
            huge,
            looks: Looks::Calls,
            ..Transfer::SINGLE
        });
        let recipe = Recipe::new(engine(opens)?, work);
        let job = Recipe { backend: Backend::Uring, cold: false, ..recipe };
        Ok(Subject { name, engine: (name, about), job })
    };
    let pages = if huge { ", in huge pages" } else { "" };
    let title = format!("random chunks of {blocks} adjoining blocks, direct{pages}");
    let columns = &[Metric::BytesPerS, Metric::CpuUsPerIo];
    let subjects = ways.iter().map(subject).collect::<Result<_>>()?;
    let targets = vec![
        Target::at_most(Metric::CpuUsPerIo, "vector", 1.0 / 2.5, "split"),
        Target::at_least(Metric::BytesPerS, "vector", 1.4, "split"),
    ];
    Ok(Case { about: "An I/O is a block.", targets, ..case(name, title, columns, subjects) })
}

// M8.

const RAW: &[&str] = &["nowait-direct", "libaio-direct", "io_uring-direct"];
/// The engine that all others are compared with.
const SYNC: &str = "psync-direct";
/// The source's machine: 20 drives, 8 threads each.
const DRIVES: usize = 20;
const THREADS_A_DRIVE: usize = 8;

/// A mode in which requests are made: its name, threads, depth, requests that must be over before
/// new ones are made, and what the source says of it.
type Mode = (&'static str, usize, usize, usize, &'static str);

const MODES: [Mode; 4] = [
    ("overhead", DRIVES * THREADS_A_DRIVE, 1, 1, "overhead: equal from 8 KiB on, 20–25 % more CPU"),
    ("batch", 8, DRIVES, DRIVES, "batch: well below sync"),
    ("minimum", 8, DRIVES, 1, "minimum batch: at most equal, 10–20 % more CPU"),
    ("minimum-x2", 16, DRIVES, 1, "with 16 threads: above sync at 8 KiB only"),
];

/// Name, write, random.
pub(super) const RAW_KINDS: [(&str, bool, bool); 4] = [
    ("sequential-read", false, false),
    ("random-read", false, true),
    ("sequential-write", true, false),
    ("random-write", true, true),
];

const RAW_BLOCKS: [(usize, &str); 7] = [
    (512, "512"),
    (1 << 10, "1k"),
    (4 << 10, "4k"),
    (16 << 10, "16k"),
    (64 << 10, "64k"),
    (256 << 10, "256k"),
    (1 << 20, "1m"),
];
/// The sizes that all devices take.
pub(super) const RAW_PAGES: &[(usize, &str)] = RAW_BLOCKS.split_at(2).1;

const RAW_COLUMNS: &[Metric] = &[
    Metric::BytesPerS,
    Metric::Iops,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
    Metric::LatencyUsP50,
    Metric::LatencyUsP99,
];

/// Makes a case for each kind and block size, with synchronous threads first.
pub(super) fn rawio(
    engines: &[&'static EngineDef],
    kinds: &[(&str, bool, bool)],
    blocks: &[(usize, &str)],
) -> Result<Vec<Case<Recipe>>> {
    let cases = kinds.iter().flat_map(|kind| blocks.iter().map(move |block| (*kind, *block)));
    cases.map(|(kind, block)| raw_case(engines, kind, block)).collect()
}

fn raw_case(
    engines: &[&'static EngineDef],
    (kind, write, random): (&str, bool, bool),
    (block_bytes, size): (usize, &str),
) -> Result<Case<Recipe>> {
    let subject = |name, engine: &'static EngineDef, (_, threads, depth, refill, _): Mode| {
        let work = Work::Transfer(Transfer {
            write_percent: if write { 100 } else { 0 },
            access: if random { Access::Random } else { Access::Sequential },
            block_bytes,
            one_lap: false,
            threads,
            depth,
            refill,
            batch: depth,
            visits: if depth > 1 { Visits::Parts(DRIVES) } else { Visits::Part(DRIVES) },
            ..Transfer::SINGLE
        });
        let job = Recipe { cold: false, ..Recipe::new(engine, work) };
        Subject { name, ..job.subject() }
    };
    let mut subjects = vec![subject(SYNC, engine(SYNC)?, MODES[0])];
    let mut targets = Vec::new();
    for mode in MODES {
        for engine in engines.iter().filter(|engine| !engine.is_synchronous()) {
            let own = name(format!("{}/{}", engine.name, mode.0));
            subjects.push(subject(own, engine, mode));
            if mode.0 == "minimum" && engine.name == "nowait-direct" && block_bytes >= 4096 {
                targets.push(Target::at_least(Metric::BytesPerS, own, 1.0, SYNC));
                targets.push(Target::at_most(Metric::CpuUsPerIo, own, 1.0, SYNC));
            }
        }
    }
    let (words, threads) = (kind.replace('-', " "), DRIVES * THREADS_A_DRIVE);
    let title = format!("{words}, {size}, direct: AIO against {threads} threads");
    let source = format!("against sync, {}", MODES.map(|mode| mode.4).join("; "));
    let name = name(format!("{kind}-{size}"));
    Ok(Case { source, targets, ..case(name, title, RAW_COLUMNS, subjects) })
}

// M9.

const MIXED: &[&str] =
    &["libaio", "nowait-offload", "nowait-host", "nowait-user", "io_uring", "null"];

const MIXED_COLUMNS: &[Metric] = &[
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

/// Makes the case of random reads and writes, for a disk or for memory.
pub(super) fn randrw(asked: &[String], ram: bool) -> Result<Case<Recipe>> {
    let engines = engines(asked, MIXED)?;
    let transfer = Transfer { write_percent: 50, ..Transfer::SINGLE };
    let able = engines.iter().filter(|engine| engine.writes());
    let subjects = able.map(|engine| Recipe::new(engine, as_it_can(engine, transfer)).subject());
    // In memory nothing waits, so that there is less to win: the source's own ratios.
    let (name, source, submit_ratio, iops_ratio) = match ram {
        false => (
            "disk",
            "mean submit of a read 6571.88 → 1.65 µs, of a write 24.66 → 1.85 µs; 151 → 123 \
             reads/s",
            1.0 / 20.0,
            1.0,
        ),
        true => (
            "ram",
            "mean submit 3.46 → 0.38 µs; 122 k → 140 k IOPS (ramdisk)",
            0.38 / 3.46,
            140.0 / 122.0,
        ),
    };
    // The mode of submit that users have without choosing one.
    let ours = "nowait-host";
    let targets = vec![
        Target::at_most(Metric::SubmitUsMean, ours, submit_ratio, "libaio"),
        Target::at_least(Metric::Iops, ours, iops_ratio, "libaio"),
    ];
    let title = "randrw 4 KiB, depth 32, one request a call, buffered";
    let case = case(name, title, MIXED_COLUMNS, subjects.collect());
    Ok(Case { source: source.to_owned(), targets, ..case })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    #[test]
    fn the_tables_are_well_formed() {
        let args: WorkloadArgs = parse(&[]);
        for suite in [AIO_STRESS, RAWIO, RANDRW, VECTOR] {
            crate::testing::check(&(suite.cases)(&args).expect("known engines"));
        }
    }

    #[test]
    fn the_rows_of_aio_stress_are_those_of_the_source() {
        let cases = stress_rows(&[]).expect("known");
        assert_eq!(cases.len(), 6);
        assert!(cases[0].has("mmap") && !cases[1].has("mmap"), "mmap only reads");
        assert!(cases[0].targets.iter().all(|target| target.metric == Metric::BytesPerS));
        assert!(cases[5].targets.iter().all(|target| target.metric == Metric::BytesPerSSynced));
    }

    #[test]
    fn modes_have_the_numbers_of_the_source() {
        let engines = [engine("nowait-direct").expect("known")];
        let cases = rawio(&engines, &RAW_KINDS, &[(4096, "4k"), (1 << 20, "1m")]).expect("made");
        assert_eq!(cases.len(), 8);
        assert_eq!((cases[0].name, cases[1].name), ("sequential-read-4k", "sequential-read-1m"));
        let in_flight = |subject: &Subject<Recipe>| match subject.job.work {
            Work::Transfer(transfer) => (subject.name, transfer.threads * transfer.depth),
            Work::Act(_) => unreachable!("all are transfers"),
        };
        let flights: Vec<(&str, usize)> = cases[0].subjects.iter().map(in_flight).collect();
        assert_eq!(
            flights,
            [
                ("psync-direct", 160),
                ("nowait-direct/overhead", 160),
                ("nowait-direct/batch", 160),
                ("nowait-direct/minimum", 160),
                ("nowait-direct/minimum-x2", 320)
            ]
        );
        assert_eq!(cases[0].targets.len(), 2);
    }
}
