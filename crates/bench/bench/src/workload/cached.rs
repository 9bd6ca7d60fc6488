//! `bench cached`: our own page cache against every peer: cases, and what must come out.

use nowait_harness::order::Access;
use nowait_peers::job::{Backend, Fsync, Looks, Transfer, Warm, Work};

use super::args::{SuiteDef, WorkloadArgs};
use super::recipe::{Recipe, Share, case, engine, in_flight};
use crate::args::Defaults;
use crate::case::{Against, Case, Subject, Target};
use crate::error::Result;
use crate::measurement::Pairs;
use crate::metric::Metric::{
    self, BytesPerS, CpuUsPerIo, Iops, IopsPerCore, OtherBusyCores, SubmitSleeps, SubmitUsMax,
    SubmitUsP50, SubmitUsP999, SubmitUsP9999,
};

pub(crate) const EXAMPLES: &str = "\
Runs of 2 s; a large cached set of 2G, and a file four times as large; with --quick 150 ms and 128M.

Examples:
  nowait bench cached --quick                  every case, small: under three minutes
  nowait bench cached --case a,e --rounds 9    some cases, more certain
  nowait bench cached --engine nowait,psync --case a-4k
  nowait bench cached --list                   the cases and their targets, nothing run";

/// Sets and files are shares and multiples of the size.
pub(crate) const CACHED: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [2000, 150],
        size_bytes: [2 << 30, 128 << 20],
        least_bytes: 16 << 20,
    },
    takes_engines: false,
    apart: true,
    pairs: Pairs::FirstWith,
    ..SuiteDef::new("cached", cases)
};

/// The columns of a case.
const COLUMNS: &[Metric] = &[
    Iops,
    IopsPerCore,
    BytesPerS,
    CpuUsPerIo,
    SubmitUsP50,
    SubmitUsP999,
    SubmitUsP9999,
    SubmitUsMax,
    SubmitSleeps,
    OtherBusyCores,
];

/// The work of all subjects of a case, and its size.
#[derive(Debug, Clone, Copy)]
struct Job {
    sync: bool,
    work: Transfer,
    set: Share,
    pool: Share,
}

/// One way to do it: its name, its engine in the registry, and what that is here.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    engine: &'static str,
    about: &'static str,
    kaio: bool,
    threads: usize,
    /// Differs from the case.
    depth: Option<usize>,
    block_bytes: Option<usize>,
    warm: Option<Warm>,
}

const fn way(name: &'static str, engine: &'static str, about: &'static str) -> Way {
    let (depth, block_bytes, warm) = (None, None, None);
    Way { name, engine, about, kaio: false, threads: 1, depth, block_bytes, warm }
}

const NOWAIT: Way = way("nowait", "nowait-user", "our page cache through the native API");
const KAIO: Way = Way {
    name: "nowait-kaio",
    about: "our page cache, native API, while a filter refuses io_uring",
    kaio: true,
    ..NOWAIT
};
const GUARD: Way =
    way("nowait-guard", "nowait-guard", "our page cache without a copy: pages are lent");
const MEMCPY: Way =
    way("memcpy", "memcpy", "copies from private huge pages: the ceiling of any cache");
const MMAP: Way = way("mmap", "mmap-populated", "a shared mapping, populated, and memcpy");
const PSYNC: Way = way("psync", "psync", "pread and pwrite on the kernel's page cache");
const PSYNC_AHEAD: Way =
    way("psync-ahead", "psync-ahead", "pread, the kernel told of 2 MiB ahead, as far as we read");
const PREADV2: Way =
    way("preadv2-nowait", "preadv2-nowait", "preadv2 with RWF_NOWAIT on the kernel's page cache");
const URING: Way = way("io_uring", "io_uring-wait", "io_uring on the kernel's page cache");
const DEFER: Way =
    way("io_uring-defer", "io_uring-defer", "io_uring with DEFER_TASKRUN and SINGLE_ISSUER");
const LIBAIO: Way = way("libaio", "libaio", "the kernel's native AIO on its page cache");
const DIRECT_LIBAIO: Way =
    way("direct-libaio", "libaio-direct", "the kernel's native AIO with O_DIRECT");
const DIRECT_URING: Way = way("direct-io_uring", "io_uring-wait-direct", "io_uring with O_DIRECT");
/// The device, as fast as it goes in order.
const DEVICE: Way =
    Way { name: "direct-1m", depth: Some(8), block_bytes: Some(1 << 20), ..DIRECT_LIBAIO };

const fn at_least(metric: Metric, of: &'static str, ratio: f64, against: &'static str) -> Target {
    Target::at_least(metric, of, ratio, against)
}

/// No call of submit waits for the device: even a rare one takes a few times as long as most.
const fn submit_never_waits(of: &'static str) -> Target {
    let target = Target::at_most(SubmitUsP999, of, 20.0, of);
    Target { against: Against::Own(SubmitUsP50), ..target }
}

/// Blocks at random places of a set that is all in a cache.
const HITS: Transfer = Transfer {
    one_lap: false,
    warm: Warm::All,
    huge: false,
    looks: Looks::Calls,
    ..Transfer::SINGLE
};

/// Nothing of the file is in a cache, and no block is read twice.
const MISSES: Transfer = Transfer {
    block_bytes: 64 << 10,
    one_lap: true,
    warm: Warm::Nothing,
    looks: Looks::Sleeps,
    ..HITS
};

const IN_CACHE: Job =
    Job { sync: false, work: in_flight(HITS, 32, true), set: Share(1, 1), pool: Share(5, 4) };

const COLD: Job =
    Job { sync: false, work: in_flight(MISSES, 64, false), set: Share(4, 1), pool: Share(1, 2) };

const WRITES: Transfer = Transfer { write_percent: 100, one_lap: false, ..MISSES };

const SYNC_WRITE: Job =
    Job { sync: true, work: in_flight(WRITES, 64, false), set: Share(1, 2), pool: Share(1, 4) };

const SYNC_WAYS: &[Way] = &[NOWAIT, KAIO, LIBAIO, URING, DIRECT_LIBAIO, DIRECT_URING];

const SYNC_TARGETS: &[Target] = &[
    at_least(Iops, "nowait", 2.2, "libaio"),
    at_least(Iops, "nowait", 0.95, "direct-libaio"),
    at_least(Iops, "nowait-kaio", 0.9, "nowait"),
    submit_never_waits("nowait"),
];

/// A row of the table.
struct Row {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    job: Job,
    ways: &'static [Way],
    targets: &'static [Target],
}

/// Every case, in the order of the report.
const ROWS: [Row; 13] = [
    Row {
        name: "a-4k",
        title: "4 KiB random reads of a large set, all cached, in batches of 32",
        about: "Memory is the limit: copies from random pages of huge pages are the ceiling.",
        job: IN_CACHE,
        ways: &[NOWAIT, KAIO, MEMCPY, MMAP, PSYNC, PREADV2, URING, DEFER, LIBAIO],
        targets: &[
            at_least(IopsPerCore, "nowait", 0.75, "memcpy"),
            at_least(IopsPerCore, "nowait", 1.8, "psync"),
            at_least(IopsPerCore, "nowait", 1.7, "io_uring"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
            submit_never_waits("nowait"),
        ],
    },
    Row {
        name: "a-4k-small",
        title: "4 KiB random reads of a small set, all cached, in batches of 32",
        about: "The set fits a large third-level cache: what a look-up costs shows.",
        job: Job { set: Share(1, 32), pool: Share(1, 8), ..IN_CACHE },
        ways: &[NOWAIT, KAIO, MEMCPY, PSYNC, URING, DEFER, LIBAIO],
        targets: &[
            at_least(IopsPerCore, "nowait", 2.5, "io_uring"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Row {
        name: "a-512",
        title: "512 byte random reads, all cached, in batches of 32",
        about: "Little is copied: the cost of a request shows.",
        job: Job { work: Transfer { block_bytes: 512, ..IN_CACHE.work }, ..IN_CACHE },
        ways: &[NOWAIT, KAIO, MEMCPY, PSYNC, URING, DEFER],
        targets: &[
            at_least(IopsPerCore, "nowait", 3.0, "io_uring"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Row {
        name: "a-64k",
        title: "64 KiB random reads, all cached, in batches of 32",
        about: "The copy is nearly everything.",
        job: Job { work: Transfer { block_bytes: 64 << 10, ..IN_CACHE.work }, ..IN_CACHE },
        ways: &[NOWAIT, KAIO, MEMCPY, PSYNC, URING],
        targets: &[
            at_least(IopsPerCore, "nowait", 1.25, "psync"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Row {
        name: "a-threads",
        title: "4 KiB random reads, all cached, one thread and two",
        about: "Each thread has a queue of its own.",
        job: IN_CACHE,
        ways: &[
            NOWAIT,
            Way { name: "nowait-2", threads: 2, ..NOWAIT },
            MEMCPY,
            Way { name: "memcpy-2", threads: 2, ..MEMCPY },
            Way { name: "psync-2", threads: 2, ..PSYNC },
        ],
        targets: &[at_least(Iops, "nowait-2", 1.9, "nowait")],
    },
    Row {
        name: "b",
        title: "4 KiB random reads without a copy, all cached",
        about: "Pages are lent; one word at either end of each is looked at.",
        job: IN_CACHE,
        ways: &[GUARD, PSYNC],
        targets: &[at_least(IopsPerCore, "nowait-guard", 6.0, "psync")],
    },
    Row {
        name: "c",
        title: "64 KiB random reads, uncached, 64 in flight",
        about: "No block is read twice.",
        job: COLD,
        ways: &[NOWAIT, KAIO, LIBAIO, URING, DIRECT_LIBAIO, DIRECT_URING],
        targets: &[
            at_least(Iops, "nowait", 0.97, "direct-libaio"),
            at_least(Iops, "nowait", 1.6, "io_uring"),
            Target::at_most(CpuUsPerIo, "nowait", 0.6, "io_uring"),
            at_least(Iops, "nowait-kaio", 0.9, "nowait"),
            submit_never_waits("nowait"),
        ],
    },
    Row {
        name: "d",
        title: "4 KiB random reads, 32 in flight, of a set twice as large as our pool",
        about: "The kernel's cache has every other 64 KiB before the run, and grows during it.",
        job: Job {
            work: Transfer {
                access: Access::Uniform,
                warm: Warm::Half,
                looks: Looks::Sleeps,
                one_lap: true,
                ..in_flight(HITS, 32, false)
            },
            set: Share(2, 1),
            pool: Share(1, 1),
            ..IN_CACHE
        },
        ways: &[NOWAIT, KAIO, LIBAIO, URING, DIRECT_LIBAIO, DIRECT_URING],
        targets: &[
            at_least(Iops, "nowait", 1.0, "io_uring"),
            at_least(Iops, "nowait", 1.0, "direct-libaio"),
            at_least(Iops, "nowait", 1.0, "direct-io_uring"),
            at_least(Iops, "nowait-kaio", 0.9, "nowait"),
            submit_never_waits("nowait"),
        ],
    },
    Row {
        name: "e",
        title: "sequential reads in 64 KiB requests, uncached",
        about: "One request at a time, like a program that knows no better, and eight. We read up \
                to 2 MiB ahead, the kernel by itself 128 KiB on most devices: judged is the peer \
                that is told of as much ahead, psync-ahead.",
        job: Job {
            work: Transfer { access: Access::Sequential, ..in_flight(MISSES, 1, false) },
            ..COLD
        },
        ways: &[
            NOWAIT,
            Way { name: "nowait-8", depth: Some(8), ..NOWAIT },
            KAIO,
            PSYNC,
            PSYNC_AHEAD,
            URING,
            DEVICE,
        ],
        targets: &[
            at_least(BytesPerS, "nowait", 0.95, "direct-1m"),
            at_least(BytesPerS, "nowait", 1.0, "psync-ahead"),
            at_least(BytesPerS, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Row {
        name: "f-random",
        title: "64 KiB random writes, O_DSYNC, 64 in flight",
        about: "Every block has been written before.",
        job: SYNC_WRITE,
        ways: SYNC_WAYS,
        targets: SYNC_TARGETS,
    },
    Row {
        name: "f-sequential",
        title: "64 KiB sequential writes, O_DSYNC, 64 in flight",
        about: "Every block has been written before.",
        job: Job { work: Transfer { access: Access::Sequential, ..SYNC_WRITE.work }, ..SYNC_WRITE },
        ways: SYNC_WAYS,
        targets: SYNC_TARGETS,
    },
    Row {
        name: "g-write",
        title: "buffered sequential writes of 64 KiB, then fsync",
        about: "Over blocks that have been written before; one lap, the fsync in the time.",
        job: Job {
            sync: false,
            work: Transfer {
                fsync: Fsync::Inside,
                access: Access::Sequential,
                one_lap: true,
                looks: Looks::Calls,
                ..in_flight(WRITES, 32, true)
            },
            pool: Share(5, 4),
            ..SYNC_WRITE
        },
        ways: &[NOWAIT, KAIO, PSYNC, DEVICE],
        targets: &[
            at_least(BytesPerS, "nowait", 1.3, "psync"),
            at_least(BytesPerS, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Row {
        name: "g-overwrite",
        title: "4 KiB random writes over cached pages, in batches of 32",
        about: "Less than what makes either cache write back. The kernel's has folios of one \
                page, and for the last peer those of a sequential read.",
        job: Job {
            work: Transfer { write_percent: 100, ..IN_CACHE.work },
            set: Share(1, 4),
            ..IN_CACHE
        },
        ways: &[
            NOWAIT,
            KAIO,
            Way { warm: Some(Warm::Pages), ..PSYNC },
            Way { name: "psync-large", ..PSYNC },
        ],
        targets: &[
            at_least(IopsPerCore, "nowait", 2.5, "psync"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
            submit_never_waits("nowait"),
        ],
    },
];

/// The cases that differ in the block size only, and the words for all of them.
const OF_SIZES: ([&str; 3], &str) =
    (["a-512", "a-4k", "a-64k"], "random reads of a large set, all cached, in batches of 32");

/// Makes the cases.
fn cases(_: &WorkloadArgs) -> Result<Vec<Case<Recipe>>> {
    ROWS.iter().map(of_row).collect()
}

fn of_row(row: &Row) -> Result<Case<Recipe>> {
    let Job { sync, work, set, pool } = row.job;
    let cold = matches!(work.warm, Warm::Nothing | Warm::Half) || work.write_percent > 0;
    let subject = |way: &Way| {
        let depth = way.depth.unwrap_or(work.depth);
        let own = Transfer {
            warm: way.warm.unwrap_or(work.warm),
            threads: way.threads,
            block_bytes: way.block_bytes.unwrap_or(work.block_bytes),
            ..in_flight(work, depth, work.depth > 1 && work.refill == work.depth)
        };
        let recipe = Recipe::new(engine(way.engine)?, Work::Transfer(own));
        let backend = if way.kaio { Backend::Kaio } else { Backend::Uring };
        let family = OF_SIZES.0.contains(&row.name).then_some(OF_SIZES.1);
        let job = Recipe { backend, sync, family, cold, set, pool, ..recipe };
        Ok(Subject { name: way.name, engine: (way.name, way.about), job })
    };
    let subjects = row.ways.iter().map(subject).collect::<Result<_>>()?;
    let (about, targets) = (row.about, row.targets.to_vec());
    Ok(Case { about, targets, ..case(row.name, row.title, COLUMNS, subjects) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    fn selection(arguments: &[&str]) -> Result<Vec<Case<Recipe>>> {
        let args: WorkloadArgs = parse(arguments);
        args.measure.select_subjects(cases(&args).expect("known engines"))
    }

    #[test]
    fn the_cases_are_well_formed() {
        crate::testing::check(&cases(&parse(&[])).expect("known engines"));
    }

    #[test]
    fn cases_and_engines_can_be_chosen() {
        assert_eq!(selection(&[]).expect("valid").len(), ROWS.len());
        let chosen = selection(&["--case", "f", "--engine", "nowait,libaio"]).expect("valid");
        let names: Vec<&str> = chosen.iter().map(|case| case.name).collect();
        assert_eq!(names, ["f-random", "f-sequential"]);
        assert_eq!(chosen[0].subjects.len(), 2);
        assert_eq!(selection(&["--case", "zz"]).map_err(|e| e.exit_code()).err(), Some(2));
        assert_eq!(selection(&["--engine", "x"]).map_err(|e| e.exit_code()).err(), Some(2));
    }
}
