//! The cases: what the client does, the server, and the target.

use crate::args::Extent;
use crate::case::{self, Against, Comparison, Target};
use crate::measurement::CaseResults;
use crate::metric::Metric::{
    self, BytesPerS, ContextSwitchesPerIo, CpuUsPerIo, Iops, LatencyUsP50, LatencyUsP99,
    PageCacheGrowthBytes,
};
use crate::runs::Runs;
use crate::units;
use serde_json::json;

/// A server of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// `nowait serve --nbd`, with this `--cache`.
    Nowait(&'static str),
    /// `nowait serve --fuse`: the image as a file.
    NowaitFuse,
    /// `qemu-nbd`, with these `--cache` and `--aio`.
    Qemu(&'static str, &'static str),
    /// `nbdkit file`: the kernel's page cache and threads.
    Nbdkit,
    /// `qemu-storage-daemon`'s FUSE export: the image as a file, too.
    QemuFuse,
    /// The kernel's loop device, with direct I/O or through the page cache.
    Loop(LoopIo),
    /// None: the client has the file itself, with direct I/O.
    File,
}

/// How a loop device reads and writes its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopIo {
    Direct,
    Buffered,
}

/// All of them, with their names.
pub(crate) const SERVERS: [(&str, Server); 10] = [
    (OURS, Server::Nowait("none")),
    (OURS_AS_FILE, Server::NowaitFuse),
    ("qemu-native", Server::Qemu("none", "native")),
    ("qemu-uring", Server::Qemu("none", "io_uring")),
    ("qemu-writeback", Server::Qemu("writeback", "threads")),
    ("nbdkit", Server::Nbdkit),
    ("qemu-fuse", Server::QemuFuse),
    ("loop", Server::Loop(LoopIo::Direct)),
    ("loop-buffered", Server::Loop(LoopIo::Buffered)),
    ("file", Server::File),
];

/// The subjects that are judged.
pub(crate) const OURS: &str = "nowait";
pub(crate) const OURS_AS_FILE: &str = "nowait-fuse";

/// What the client works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// What is served, 32 requests deep, past its own page cache.
    Disk,
    /// Files of an ext4 on that: four jobs, blocking calls, its page cache.
    Ext4,
}

/// With direct I/O nothing of the image is kept twice: the loop patch of 2015 had less than 5 MB in
/// Buffers where there were 760 before.
const KEEPS_NOTHING: Target = Target {
    metric: PageCacheGrowthBytes,
    subject: OURS,
    comparison: Comparison::AtMost,
    ratio: 1.0,
    against: Against::Bytes(5e6),
};

const fn at_least(metric: Metric, ratio: f64, against: &'static str) -> Target {
    Target::at_least(metric, OURS, ratio, against)
}

const fn at_most(metric: Metric, ratio: f64, against: &'static str) -> Target {
    Target::at_most(metric, OURS, ratio, against)
}

/// The same for the image as a file.
const fn as_file(metric: Metric) -> Target {
    Target::at_least(metric, OURS_AS_FILE, 1.0, "qemu-fuse")
}

const READ_4K: &[Target] = &[
    at_least(Iops, 1.3, "qemu-native"),
    at_least(Iops, 1.3, "qemu-uring"),
    at_least(Iops, 1.3, "nbdkit"),
    at_most(CpuUsPerIo, 1.0, "qemu-native"),
    at_most(CpuUsPerIo, 1.0, "qemu-uring"),
    at_most(CpuUsPerIo, 1.0, "nbdkit"),
    KEEPS_NOTHING,
    at_most(ContextSwitchesPerIo, 0.5, "nbdkit"),
    as_file(Iops),
    Target::at_most(CpuUsPerIo, OURS_AS_FILE, 1.0, "qemu-fuse"),
];
const WRITE_4K: &[Target] = &[
    at_least(Iops, 1.2, "qemu-native"),
    at_least(Iops, 1.2, "qemu-uring"),
    at_most(CpuUsPerIo, 1.0, "qemu-native"),
    at_most(CpuUsPerIo, 1.0, "qemu-uring"),
    at_most(CpuUsPerIo, 1.0, "nbdkit"),
    KEEPS_NOTHING,
    as_file(Iops),
];
const LARGE: &[Target] = &[
    at_least(BytesPerS, 1.3, "qemu-native"),
    at_least(BytesPerS, 1.3, "qemu-uring"),
    at_most(CpuUsPerIo, 1.0, "qemu-native"),
    at_most(CpuUsPerIo, 1.0, "qemu-uring"),
    at_most(CpuUsPerIo, 1.0, "nbdkit"),
    KEEPS_NOTHING,
    as_file(BytesPerS),
];

/// The kernel's loop device as it was before the patch of 2015.
const IN_EXT4: &[Target] = &[
    Target::at_least(Iops, OURS_AS_FILE, 1.0, "loop-buffered"),
    Target::at_most(PageCacheGrowthBytes, OURS_AS_FILE, 0.1, "loop-buffered"),
];

/// A job of the client, with one of the servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) server: Server,
    pub(crate) on: On,
    /// fio's `--rw`.
    pub(crate) rw: &'static str,
    pub(crate) block_bytes: u64,
}

/// The columns of a case.
const COLUMNS: &[Metric] =
    &[Iops, BytesPerS, LatencyUsP50, LatencyUsP99, CpuUsPerIo, ContextSwitchesPerIo];

type Row = (&'static str, On, &'static str, u64, &'static [Target]);

/// All cases. Those that make a file system come last: it stays on the image. They are the four of
/// the patch of 2015 (`block: loop: support DIO & AIO`).
const ROWS: [Row; 8] = [
    ("read-4k", On::Disk, "randread", 4 << 10, READ_4K),
    ("write-4k", On::Disk, "randwrite", 4 << 10, WRITE_4K),
    ("read-128k", On::Disk, "randread", 128 << 10, LARGE),
    ("write-128k", On::Disk, "randwrite", 128 << 10, LARGE),
    ("ext4-randread", On::Ext4, "randread", 4 << 10, IN_EXT4),
    ("ext4-read", On::Ext4, "read", 4 << 10, IN_EXT4),
    ("ext4-randwrite", On::Ext4, "randwrite", 4 << 10, IN_EXT4),
    ("ext4-write", On::Ext4, "write", 4 << 10, IN_EXT4),
];

/// Makes the cases, each with the servers that can serve it: a file system wants a file or a
/// device. An ext4 on the file of QEMU 7.2 could not be mounted through a loop device.
pub(crate) fn cases() -> Vec<case::Case<Job>> {
    let case = |(name, on, rw, block_bytes, targets): Row| {
        let able = SERVERS.into_iter().filter(|(_, server)| {
            on == On::Disk || matches!(server, Server::NowaitFuse | Server::Loop(_))
        });
        let subject = |(name, server): (&'static str, Server)| case::Subject {
            name,
            engine: (name, server.describe()),
            job: Job { server, on, rw, block_bytes },
        };
        let depth = match on {
            On::Disk => "32 deep",
            On::Ext4 => "4 jobs of blocking calls in an ext4",
        };
        let block = units::bytes(block_bytes as f64);
        case::Case {
            name,
            title: format!("{rw} of {block}, {depth}"),
            about: "",
            source: String::new(),
            columns: COLUMNS,
            subjects: able.map(subject).collect(),
            targets: targets.to_vec(),
        }
    };
    ROWS.into_iter().map(case).collect()
}

/// Puts the runs of a case together.
pub(crate) fn results(
    case: &case::Case<Job>,
    runs: Runs,
    extent: &Extent,
    quick: bool,
) -> CaseResults {
    let job = &case.subjects[0].job;
    let title = format!(
        "{}{}, on {}; {} rounds of {} s",
        if quick { "quick, not to be published: " } else { "" },
        case.title,
        units::bytes(extent.size_bytes as f64),
        extent.rounds,
        units::digits(extent.runtime.as_secs_f64())
    );
    let params = json!({ "rw": job.rw, "block_bytes": job.block_bytes });
    CaseResults::new(&case::Case { title, ..case.without_jobs() }, runs, params)
}

impl Server {
    /// Returns what the reader of a report must know.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Nowait(_) => "nowait serve --nbd",
            Self::NowaitFuse => "nowait serve --fuse: the client has a file, with O_DIRECT",
            Self::Qemu(_, "native") => "qemu-nbd on O_DIRECT and native AIO",
            Self::Qemu(_, "io_uring") => "qemu-nbd on O_DIRECT and io_uring",
            Self::Qemu(..) => "qemu-nbd on the kernel's page cache",
            Self::Nbdkit => "nbdkit file: the kernel's page cache and threads",
            Self::QemuFuse => "qemu-storage-daemon on O_DIRECT and native AIO, as a file by FUSE",
            Self::Loop(LoopIo::Direct) => "the kernel's loop device on O_DIRECT",
            Self::Loop(LoopIo::Buffered) => "the kernel's loop device on its page cache",
            Self::File => "no server: the client has the file itself, with O_DIRECT",
        }
    }
}
