//! `bench limits`: the machine at its best, beside the kernel and nowait. The
//! limit of each case comes first: an act, or the device by the way that costs least.

use nowait_peers::job::{Act, Backend, Looks, Transfer, Warm, Work};

use super::args::{SuiteDef, WorkloadArgs};
use super::recipe::{Recipe, Share, case, engine, in_flight};
use crate::args::Defaults;
use crate::case::{Case, Subject};
use crate::error::Result;
use crate::metric::Metric::{
    self, BytesPerS, ContextSwitchesPerIo, CpuUsPerIo, Iops, IopsPerCore, LatencyUsP50,
};

pub(crate) const EXAMPLES: &str = "\
Five runs of 1 s on 1G: five minutes. With --quick 150 ms on 256M: one minute.

Examples:
  nowait bench limits                         every limit, and how far nowait is from it
  nowait bench limits --case copy-4k,disk-4k --rounds 9
  nowait bench limits --list                  what is compared, nothing run";

pub(crate) const LIMITS: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [1000, 150],
        size_bytes: [1 << 30, 256 << 20],
        least_bytes: 16 << 20,
    },
    takes_engines: false,
    apart: true,
    ..SuiteDef::new("limits", cases)
};

const COPY_COLUMNS: &[Metric] = &[IopsPerCore, CpuUsPerIo, BytesPerS];
const CALL_COLUMNS: &[Metric] = &[Iops, CpuUsPerIo, ContextSwitchesPerIo];
const DISK_COLUMNS: &[Metric] = &[Iops, BytesPerS, CpuUsPerIo, ContextSwitchesPerIo, LatencyUsP50];

/// One way: a name, the engine, what it is, and what it does.
type Way = (&'static str, &'static str, &'static str, Work);

/// The subject without `io_uring`.
const NO_RING: &str = "nowait-kaio";

/// All of it is in memory.
const fn hit(depth: usize, block_bytes: usize) -> Work {
    let all = Transfer {
        block_bytes,
        one_lap: false,
        warm: Warm::All,
        huge: false,
        looks: Looks::Calls,
        ..Transfer::SINGLE
    };
    Work::Transfer(in_flight(all, depth, true))
}

/// An act goes by no engine.
const fn act(name: &'static str, about: &'static str, act: Act) -> Way {
    (name, "null", about, Work::Act(act))
}

fn cases(_: &WorkloadArgs) -> Result<Vec<Case<Recipe>>> {
    let mut all = vec![call()?, handover()?];
    for (name, block_bytes) in [("copy-512", 512), ("copy-4k", 4 << 10), ("copy-64k", 64 << 10)] {
        all.push(copy(name, block_bytes)?);
    }
    all.push(disk("disk-4k", "direct reads of 4 KiB at random places", 4 << 10, 0)?);
    all.push(disk("disk-64k", "direct reads of 64 KiB at random places", 64 << 10, 0)?);
    all.push(disk("durable-4k", "direct O_DSYNC writes of 4 KiB", 4 << 10, 100)?);
    Ok(all)
}

fn of_ways(
    (name, title, about): (&'static str, String, &'static str),
    columns: &'static [Metric],
    ways: &[Way],
) -> Result<Case<Recipe>> {
    let subject = |&(name, opens, about, work): &Way| {
        // Files in memory stay there.
        let cold = matches!(work, Work::Transfer(Transfer { warm: Warm::Nothing, .. }));
        let job = Recipe { cold, pool: Share(5, 4), ..Recipe::new(engine(opens)?, work) };
        Ok(Subject { name, engine: (name, about), job })
    };
    let subjects = ways.iter().map(subject).collect::<Result<_>>()?;
    Ok(Case { about, ..case(name, title, columns, subjects) })
}

fn call() -> Result<Case<Recipe>> {
    let hit = hit(1, 512);
    let about = "A request that costs a system call costs at least an empty one. A hit in a cache \
                 of the process needs none.";
    let title = "one at a time: 512 bytes that are in memory".to_owned();
    let ways = [
        act("empty-call", "a system call that does nothing", Act::Call),
        ("psync", "psync", "pread, in the kernel's page cache", hit),
        ("libaio", "libaio", "native AIO, in the kernel's page cache", hit),
        ("io_uring", "io_uring-wait", "io_uring, in the kernel's page cache", hit),
        ("nowait-host", "nowait-host", "nowait, in the kernel's page cache", hit),
        ("nowait-user", "nowait-user", "nowait, in its own page cache", hit),
    ];
    of_ways(("call", title, about), CALL_COLUMNS, &ways)
}

fn handover() -> Result<Case<Recipe>> {
    let hit = hit(1, 4 << 10);
    let about = "What another thread does costs at least two wake-ups, to it and back.";
    let title = "one at a time, by another thread: 4 KiB that are in memory".to_owned();
    let ways = [
        act("round-trip", "two threads wake each other", Act::RoundTrip),
        ("threads", "threads", "a pool of threads that pread", hit),
        ("nowait-offload", "nowait-offload", "nowait, nothing done in submit", hit),
    ];
    of_ways(("handover", title, about), CALL_COLUMNS, &ways)
}

fn copy(name: &'static str, block_bytes: usize) -> Result<Case<Recipe>> {
    let hit = hit(32, block_bytes);
    let about = "Each read copies its bytes: no cache that copies is faster than memory. Pages \
                 that are lent are not copied.";
    let title = format!("reads of {block_bytes} bytes at random places, all in memory, 32 a call");
    let ways = [
        ("memcpy", "memcpy", "copies from private huge pages", hit),
        ("mmap", "mmap-populated", "copies from a populated mapping", hit),
        ("psync", "psync", "pread, in the kernel's page cache", hit),
        ("io_uring", "io_uring-wait", "io_uring, in the kernel's page cache", hit),
        ("nowait-user", "nowait-user", "nowait, in its own page cache", hit),
    ];
    of_ways((name, title, about), COPY_COLUMNS, &ways)
}

/// The device by the way that costs least, then by others.
fn disk(
    name: &'static str,
    what: &str,
    block_bytes: usize,
    write_percent: u8,
) -> Result<Case<Recipe>> {
    let transfer = Transfer { block_bytes, write_percent, one_lap: false, ..Transfer::SINGLE };
    let deep = Work::Transfer(transfer);
    let threads = Work::Transfer(Transfer { threads: 32, depth: 1, ..transfer });
    let about = "The file and the buffers are registered with io_uring for the first: the kernel's \
                 part alone. Nothing of it is in the kernel's cache.";
    let title = format!("{what}, 32 in flight, one a call");
    let user = if write_percent == 0 { "cold: a miss and a copy each" } else { "and its cache" };
    let ways = [
        ("io_uring-registered", "io_uring-registered", "io_uring, all registered", deep),
        ("psync-32", "psync-direct", "32 threads that pread or pwrite", threads),
        ("libaio", "libaio-direct", "native AIO", deep),
        ("nowait-direct", "nowait-direct", "nowait, O_DIRECT", deep),
        (NO_RING, "nowait-direct", "the same without io_uring", deep),
        ("nowait-user", "nowait-user", user, deep),
    ];
    let mut case = of_ways((name, title, about), DISK_COLUMNS, &ways)?;
    for Subject { name, job, .. } in &mut case.subjects {
        job.sync = write_percent > 0;
        job.backend = if *name == NO_RING { Backend::Kaio } else { Backend::Auto };
        job.set = if job.sync { Share(1, 4) } else { job.set };
        // nowait's cache holds an eighth: nearly all reads miss, as after a long time.
        job.pool = Share(1, 8);
    }
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    #[test]
    fn each_case_begins_with_its_limit() {
        let all = cases(&parse(&[])).expect("known engines");
        crate::testing::check(&all);
        let ours = |name: &str| name.starts_with("nowait");
        assert!(all.iter().all(|case| !ours(case.subjects[0].name)));
        let compared = all.iter().filter(|case| case.subjects.iter().any(|it| ours(it.name)));
        assert_eq!(compared.count(), 8);
    }
}
