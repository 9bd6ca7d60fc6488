//! The limits, each with what is held against it.

use super::super::job::{Backend, Cached, Recipe, Share, Transfer, Warm, Work};
use super::Act;
use crate::case::{Case, Subject};
use crate::error::Result;
use crate::metric::Metric::{
    self, BytesPerS, ContextSwitchesPerIo, CpuUsPerIo, Iops, IopsPerCore, LatencyUsP50,
};
use crate::offsets::Access;
use crate::peers::registry;

const COPY_COLUMNS: &[Metric] = &[IopsPerCore, CpuUsPerIo, BytesPerS];
const CALL_COLUMNS: &[Metric] = &[Iops, CpuUsPerIo, ContextSwitchesPerIo];
const DISK_COLUMNS: &[Metric] = &[Iops, BytesPerS, CpuUsPerIo, ContextSwitchesPerIo, LatencyUsP50];
const MEMORY_COLUMNS: &[Metric] = &[BytesPerS, CpuUsPerIo];
const SOCKET_COLUMNS: &[Metric] = &[Iops, BytesPerS, CpuUsPerIo, ContextSwitchesPerIo];

/// One way: a name, the engine, and what it is.
type Way = (&'static str, &'static str, &'static str, Work);

/// The subject without `io_uring`.
const NO_RING: &str = "nowait-kaio";
/// The part of the size that is written: a file of its own, because files in memory are checked to
/// be as they were laid out.
pub(super) const WRITTEN: Share = Share(1, 4);
/// The case that writes.
pub(super) const DURABLE: &str = "durable-4k";

/// All of it is in memory.
const HIT: Cached = Cached {
    write: false,
    access: Access::Random,
    warm: Warm::All,
    fsync: false,
    one_lap: false,
    batches: true,
    threads: 1,
    depth: 32,
    block_bytes: 4 << 10,
};

/// Makes the cases.
pub(super) fn cases() -> Result<Vec<Case<Recipe>>> {
    let mut all = vec![call()?, handover()?];
    for (name, block_bytes) in [("copy-512", 512), ("copy-4k", 4 << 10), ("copy-64k", 64 << 10)] {
        all.push(copy(name, block_bytes)?);
    }
    all.push(disk("disk-4k", "direct reads of 4 KiB at random places", 4 << 10, 0)?);
    all.push(disk("disk-64k", "direct reads of 64 KiB at random places", 64 << 10, 0)?);
    all.push(disk(DURABLE, "direct O_DSYNC writes of 4 KiB", 4 << 10, 100)?);
    all.push(first_touch()?);
    all.push(socket("socket-4k", 4 << 10)?);
    all.push(socket("socket-128k", 128 << 10)?);
    Ok(all)
}

fn case(
    (name, title, about): (&'static str, String, &'static str),
    columns: &'static [Metric],
    ways: &[Way],
) -> Result<Case<Recipe>> {
    let subject = |(name, engine, about, work): &Way| {
        let recipe = Recipe::new(registry::find(engine)?, *work);
        // Files in memory stay there.
        let cold = matches!(work, Work::Transfer(_));
        let job = Recipe { backend: Backend::Auto, cold, pool: Share(5, 4), ..recipe };
        Ok(Subject { name, engine: (name, about), job })
    };
    let subjects = ways.iter().map(subject).collect::<Result<_>>()?;
    let (source, targets) = (String::new(), Vec::new());
    Ok(Case { name, title, about, source, columns, subjects, targets })
}

/// An act goes by no engine.
const fn act(name: &'static str, about: &'static str, act: Act) -> Way {
    (name, "null", about, Work::Act(act))
}

fn call() -> Result<Case<Recipe>> {
    let hit = Work::Cached(Cached { depth: 1, block_bytes: 512, ..HIT });
    let about = "A request that costs a system call costs at least an empty one. A hit in a cache \
                 of the process needs none.";
    let title = "one at a time: 512 bytes that are in memory".to_owned();
    let ways = [
        act("empty-call", "a system call that does nothing", Act::Call),
        act("ring-nop", "io_uring: nothing, one a system call", Act::RingNops(1)),
        act("ring-nops", "io_uring: nothing, 32 a system call", Act::RingNops(32)),
        act("signal", "an event counter is signalled and read", Act::Signal),
        ("psync", "psync", "pread, in the kernel's page cache", hit),
        ("libaio", "kaio", "native AIO, in the kernel's page cache", hit),
        ("io_uring", "io_uring-wait", "io_uring, in the kernel's page cache", hit),
        ("nowait-host", "nowait-host", "nowait, in the kernel's page cache", hit),
        ("nowait-user", "nowait-user", "nowait, in its own page cache", hit),
    ];
    case(("call", title, about), CALL_COLUMNS, &ways)
}

fn handover() -> Result<Case<Recipe>> {
    let hit = Work::Cached(Cached { depth: 1, ..HIT });
    let about = "What another thread does costs at least two wake-ups, to it and back.";
    let title = "one at a time, by another thread: 4 KiB that are in memory".to_owned();
    let ways = [
        act("round-trip", "two threads wake each other", Act::RoundTrip),
        ("threads", "threads", "a pool of threads that pread", hit),
        ("posixaio", "posixaio", "POSIX AIO of the C library", hit),
        ("nowait-offload", "nowait-offload", "nowait, nothing done in submit", hit),
    ];
    case(("handover", title, about), CALL_COLUMNS, &ways)
}

fn copy(name: &'static str, block_bytes: usize) -> Result<Case<Recipe>> {
    let hit = Work::Cached(Cached { block_bytes, ..HIT });
    let about = "Each read copies its bytes: no cache that copies is faster than memory. Pages \
                 that are lent are not copied.";
    let title = format!("reads of {block_bytes} bytes at random places, all in memory, 32 a call");
    let ways = [
        ("memcpy", "memcpy", "copies from private huge pages", hit),
        ("mmap", "mmap-populated", "copies from a populated mapping", hit),
        ("psync", "psync", "pread, in the kernel's page cache", hit),
        ("io_uring", "io_uring-wait", "io_uring, in the kernel's page cache", hit),
        ("nowait-user", "nowait-user", "nowait, in its own page cache", hit),
        ("nowait-submission", "nowait-submission", "the same one level below the API", hit),
    ];
    case((name, title, about), COPY_COLUMNS, &ways)
}

/// The device by the way that costs least, then by others.
fn disk(
    name: &'static str,
    what: &'static str,
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
        ("libaio", "kaio-direct", "native AIO", deep),
        ("nowait-direct", "nowait-direct", "nowait, O_DIRECT", deep),
        (NO_RING, "nowait-direct", "the same without io_uring", deep),
        ("nowait-user", "nowait-user", user, deep),
    ];
    let mut case = case((name, title, about), DISK_COLUMNS, &ways)?;
    for subject in &mut case.subjects {
        subject.job.sync = write_percent > 0;
        if subject.name == NO_RING {
            subject.job.backend = Backend::Kaio;
        }
        if write_percent > 0 {
            subject.job.set = WRITTEN;
        }
        // Its cache holds an eighth: nearly all reads miss, as after a long time.
        subject.job.pool = Share(1, 8);
    }
    Ok(case)
}

fn first_touch() -> Result<Case<Recipe>> {
    let about = "A cache of the process takes its memory from the kernel once, zeroed, and in a \
                 virtual machine from the host: `nowait bench cached` begins behind it.";
    let title = "memory that is used for the first time, 64 MiB at a time".to_owned();
    let ways = [act("first-touch", "huge pages, each page touched", Act::FirstTouch)];
    case(("first-touch", title, about), MEMORY_COLUMNS, &ways)
}

fn socket(name: &'static str, bytes: usize) -> Result<Case<Recipe>> {
    let about = "A server of images sends these bytes through a socket at least: no file is read, \
                 and no request looked at. `nowait bench serve` has servers.";
    let title = format!("answers of {bytes} bytes over a Unix socket, 32 requests in flight");
    let ways = [act("socket", "a thread that sends, one that asks", Act::Answer { bytes })];
    case((name, title, about), SOCKET_COLUMNS, &ways)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_begins_with_its_limit() {
        let all = cases().expect("known engines");
        crate::testing::check(&all);
        let ours = |name: &str| name.starts_with("nowait");
        assert!(all.iter().all(|case| !ours(case.subjects[0].name)));
        let compared = all.iter().filter(|case| case.subjects.iter().any(|it| ours(it.name)));
        assert_eq!(compared.count(), 8);
    }
}
