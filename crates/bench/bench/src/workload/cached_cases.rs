//! `bench cached`: our own page cache against every peer: cases, and what must come out.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::job::{self, Backend, Recipe, Share, Warm, Work};
use super::suite::{Files, Plan, Suite};
use crate::args::{Defaults, DiskArgs, MeasureArgs};
use crate::case::{Against, Case, Subject, Target};
use crate::error::{Context, Result};
use crate::interrupt;
use crate::layout::{SMALLER, TestFile};
use crate::measurement::{CaseResults, Measurement, Pairs};
use crate::metric::Metric::{
    self, BytesPerS, CpuUsPerIo, Iops, IopsPerCore, OtherBusyCores, SubmitSleeps, SubmitUsMax,
    SubmitUsP50, SubmitUsP999, SubmitUsP9999,
};
use crate::offsets::Access;
use crate::peers::registry;
use crate::progress::Progress;
use crate::units;

const EXAMPLES: &str = "\
Runs of 2 s; a large cached set of 2G, and a file four times as large; with --quick 150 ms and 128M.

Examples:
  nowait bench cached --quick                  every case, small: under three minutes
  nowait bench cached --case a,e --rounds 9    some cases, more certain
  nowait bench cached --engine nowait,psync --case a-4k
  nowait bench cached --list                   the cases and their targets, nothing run";

/// Sets and files are shares and multiples of the size.
const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [2000, 150],
    size_bytes: [2 << 30, 128 << 20],
    least_bytes: 16 << 20,
};

/// Measures our own page cache against every peer, and checks it against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CachedArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The disk under test
    #[command(flatten)]
    pub disk: DiskArgs,
}

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
    work: job::Cached,
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
const LOWER: Way =
    way("nowait-submission", "nowait-submission", "our page cache one level below the native API");
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
const LIBAIO: Way = way("libaio", "kaio", "the kernel's native AIO on its page cache");
const DIRECT_LIBAIO: Way =
    way("direct-libaio", "kaio-direct", "the kernel's native AIO with O_DIRECT");
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

const CACHED: Job = Job {
    sync: false,
    work: job::Cached {
        write: false,
        access: Access::Random,
        warm: Warm::All,
        fsync: false,
        one_lap: false,
        batches: true,
        threads: 1,
        depth: 32,
        block_bytes: 4 << 10,
    },
    set: Share(1, 1),
    pool: Share(5, 4),
};

const COLD: Job = Job {
    work: job::Cached {
        warm: Warm::Nothing,
        batches: false,
        depth: 64,
        block_bytes: 64 << 10,
        ..CACHED.work
    },
    set: Share(4, 1),
    pool: Share(1, 2),
    ..CACHED
};

const SYNC_WRITE: Job = Job {
    sync: true,
    work: job::Cached { write: true, ..COLD.work },
    set: Share(1, 2),
    pool: Share(1, 4),
};

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
        job: CACHED,
        ways: &[NOWAIT, LOWER, KAIO, MEMCPY, MMAP, PSYNC, PREADV2, URING, DEFER, LIBAIO],
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
        job: Job { set: Share(1, 32), pool: Share(1, 8), ..CACHED },
        ways: &[NOWAIT, LOWER, KAIO, MEMCPY, PSYNC, URING, DEFER, LIBAIO],
        targets: &[
            at_least(IopsPerCore, "nowait", 2.5, "io_uring"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Row {
        name: "a-512",
        title: "512 byte random reads, all cached, in batches of 32",
        about: "Little is copied: the cost of a request shows.",
        job: Job { work: job::Cached { block_bytes: 512, ..CACHED.work }, ..CACHED },
        ways: &[NOWAIT, LOWER, KAIO, MEMCPY, PSYNC, URING, DEFER],
        targets: &[
            at_least(IopsPerCore, "nowait", 3.0, "io_uring"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Row {
        name: "a-64k",
        title: "64 KiB random reads, all cached, in batches of 32",
        about: "The copy is nearly everything.",
        job: Job { work: job::Cached { block_bytes: 64 << 10, ..CACHED.work }, ..CACHED },
        ways: &[NOWAIT, LOWER, KAIO, MEMCPY, PSYNC, URING],
        targets: &[
            at_least(IopsPerCore, "nowait", 1.25, "psync"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Row {
        name: "a-threads",
        title: "4 KiB random reads, all cached, one thread and two",
        about: "Each thread has a queue of its own.",
        job: CACHED,
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
        job: CACHED,
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
            work: job::Cached {
                access: Access::Uniform,
                warm: Warm::Half,
                batches: false,
                ..CACHED.work
            },
            set: Share(2, 1),
            pool: Share(1, 1),
            ..CACHED
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
            work: job::Cached { access: Access::Sequential, depth: 1, ..COLD.work },
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
        job: Job {
            work: job::Cached { access: Access::Sequential, ..SYNC_WRITE.work },
            ..SYNC_WRITE
        },
        ways: SYNC_WAYS,
        targets: SYNC_TARGETS,
    },
    Row {
        name: "g-write",
        title: "buffered sequential writes of 64 KiB, then fsync",
        about: "Over blocks that have been written before; one lap, the fsync in the time.",
        job: Job {
            sync: false,
            work: job::Cached {
                fsync: true,
                access: Access::Sequential,
                depth: 32,
                batches: true,
                ..SYNC_WRITE.work
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
        job: Job { work: job::Cached { write: true, ..CACHED.work }, set: Share(1, 4), ..CACHED },
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

/// Cases that differ in the block size only, and what they have in common.
const OF_SIZES: ([&str; 3], &str) =
    (["a-512", "a-4k", "a-64k"], "random reads of a large set, all cached, in batches of 32");

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, the user
/// asked to stop, or `--check` was given and a target is not met.
pub(crate) fn run_cached(args: &CachedArgs) -> Result<Option<Measurement>> {
    let measure = &args.measure;
    let plan = Plan {
        workload: "cached",
        extent: measure.extent(&DEFAULTS)?,
        device: args.disk.dir.clone(),
        smaller: SMALLER,
        drop_caches: args.disk.drops_caches(),
        keep: measure.keep,
        overwrite: false,
        dist: None,
    };
    measure.run(measure.select_subjects(cases()?)?, |cases| measure_all(&plan, &cases))
}

/// Makes the cases.
fn cases() -> Result<Vec<Case<Recipe>>> {
    ROWS.iter().map(case).collect()
}

fn case(row: &Row) -> Result<Case<Recipe>> {
    let Job { sync, work, set, pool } = row.job;
    let cold = matches!(work.warm, Warm::Nothing | Warm::Half);
    let subject = |way: &Way| {
        let work = job::Cached {
            warm: way.warm.unwrap_or(work.warm),
            one_lap: cold && !work.write,
            threads: way.threads,
            depth: way.depth.unwrap_or(work.depth),
            block_bytes: way.block_bytes.unwrap_or(work.block_bytes),
            ..work
        };
        let recipe = Recipe::new(registry::find(way.engine)?, Work::Cached(work));
        let backend = if way.kaio { Backend::Kaio } else { Backend::Uring };
        let job = Recipe { backend, sync, cold: cold || work.write, set, pool, ..recipe };
        Ok(Subject { name: way.name, engine: (way.name, way.about), job })
    };
    Ok(Case {
        name: row.name,
        title: row.title.to_owned(),
        about: row.about,
        source: String::new(),
        columns: COLUMNS,
        subjects: row.ways.iter().map(subject).collect::<Result<_>>()?,
        targets: row.targets.to_vec(),
    })
}

/// Lays the files out and measures one case after the other: what a case has cached serves all of
/// its runs.
fn measure_all(plan: &Plan, cases: &[Case<Recipe>]) -> Result<Measurement> {
    let progress = Progress::new();
    let asked = &plan.device;
    std::fs::create_dir_all(asked).context(|| format!("create {}", asked.display()))?;
    let scratch =
        tempfile::tempdir_in(asked).context(|| format!("write in {}", asked.display()))?;
    let folder = if plan.keep { asked.as_path() } else { scratch.path() };
    let [read, write] = lay_out(plan, cases, folder, &progress)?;
    let files =
        Files { read: read.path().to_owned(), write: write.path().to_owned(), in_memory: false };
    let mut suite = Suite::new(plan, files, &progress)?;
    suite.expect(cases);
    progress.start_runs();
    let mut measured = Vec::new();
    for case in cases {
        if !interrupt::happened() {
            measured.extend(suite.measure(std::slice::from_ref(case)));
        }
    }
    let mut measurement = suite.finish(measured);
    measurement.pairs = Pairs::FirstWith;
    measurement.words = (String::new(), "");
    let page_cache = match plan.drop_caches {
        true => "dropped before cold runs, else warmed up",
        false => "pages of the file dropped before cold runs, else warmed up",
    };
    measurement.params.insert("page_cache".to_owned(), page_cache.into());
    for results in &mut measurement.cases {
        if let Some(row) = ROWS.iter().find(|row| row.name == results.case.name) {
            let (how, params) = how(plan, row);
            *results = CaseResults {
                how,
                ..CaseResults::new(&results.case, results.runs.clone(), params)
            };
        }
    }
    Ok(measurement)
}

/// Writes the file that is read, and the one that is written.
fn lay_out(
    plan: &Plan,
    cases: &[Case<Recipe>],
    folder: &Path,
    progress: &Progress,
) -> Result<[TestFile; 2]> {
    let size_bytes = plan.extent.size_bytes;
    let sets = |write: bool| {
        let jobs = cases.iter().map(|case| &case.subjects[0].job);
        let jobs = jobs.filter(move |job| job.work.writes() == write);
        jobs.map(|job| job.set.of(size_bytes)).max().unwrap_or(0)
    };
    // Either file fills our pool for the runs that work on the other.
    let fill = Share(1, 2).of(size_bytes);
    // Pages that writes have stamped differ from the layout; no read of them checks that.
    let files = ["nowait-bench.pattern", "nowait-bench.written"]
        .map(|name| TestFile::with_pattern(folder.join(name), plan.keep));
    for (file, bytes) in files.iter().zip([sets(false).max(fill), sets(true).max(fill)]) {
        file.lay_out(bytes, 0, &|_| true, &|written| progress.laying_out(written, bytes))?;
    }
    Ok(files)
}

/// Tells how a case was run, in words and for the JSON.
fn how(plan: &Plan, row: &Row) -> (String, Value) {
    let Job { sync, work, set, pool } = row.job;
    let [set_bytes, pool_bytes] = [set, pool].map(|share| share.of(plan.extent.size_bytes));
    let size = |bytes: u64| units::bytes(bytes as f64);
    let words = format!(
        "{} rounds of {} s on {}, our pool {}.",
        plan.extent.rounds,
        units::digits(plan.extent.runtime.as_secs_f64()),
        size(set_bytes),
        size(pool_bytes)
    );
    let (names, family) = OF_SIZES;
    let params = json!({
        "family": names.contains(&row.name).then_some(family),
        "write": work.write,
        "sync": sync,
        "depth": work.depth,
        "block_bytes": work.block_bytes,
        "set_bytes": set_bytes,
        "pool_bytes": pool_bytes,
    });
    (words, params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    fn selection(arguments: &[&str]) -> Result<Vec<Case<Recipe>>> {
        parse::<CachedArgs>(arguments).measure.select_subjects(cases().expect("known engines"))
    }

    #[test]
    fn the_cases_are_well_formed() {
        crate::testing::check(&cases().expect("known engines"));
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
