//! What the client does, who serves it, and what must come out.

use crate::job::Comparison::{self, AtLeast, AtMost};
use crate::metric::Metric::{
    self, BytesPerS, ContextSwitchesPerIo, CpuUsPerIo, Iops, PageCacheGrowthBytes,
};
use crate::units;

/// Who serves the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
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
    /// Nobody: the client has the file itself, with direct I/O.
    File,
}

/// How a loop device reads and writes its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopIo {
    Direct,
    Buffered,
}

/// All of them, with their names.
pub(crate) const SUBJECTS: [(&str, Subject); 10] = [
    (OURS, Subject::Nowait("none")),
    (OURS_AS_FILE, Subject::NowaitFuse),
    ("qemu-native", Subject::Qemu("none", "native")),
    ("qemu-uring", Subject::Qemu("none", "io_uring")),
    ("qemu-writeback", Subject::Qemu("writeback", "threads")),
    ("nbdkit", Subject::Nbdkit),
    ("qemu-fuse", Subject::QemuFuse),
    ("loop", Subject::Loop(LoopIo::Direct)),
    ("loop-buffered", Subject::Loop(LoopIo::Buffered)),
    ("file", Subject::File),
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

/// A job of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) on: On,
    /// fio's `--rw`.
    pub(crate) rw: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) targets: &'static [Target],
}

/// What must come out of one of ours, compared with another server or with a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) ours: &'static str,
    pub(crate) metric: Metric,
    pub(crate) comparison: Comparison,
    pub(crate) ratio: f64,
    pub(crate) against: Against,
}

/// What ours is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Against {
    Server(&'static str),
    /// So many bytes.
    Bytes(f64),
}

const fn target(
    metric: Metric,
    comparison: Comparison,
    ratio: f64,
    against: &'static str,
) -> Target {
    Target { ours: OURS, metric, comparison, ratio, against: Against::Server(against) }
}

/// With direct I/O nothing of the image is kept twice: the loop patch of 2015 had less than 5 MB in
/// Buffers where there were 760 before.
const KEEPS_NOTHING: Target = Target {
    ours: OURS,
    metric: PageCacheGrowthBytes,
    comparison: AtMost,
    ratio: 1.0,
    against: Against::Bytes(5e6),
};

/// The same for the image as a file.
const fn as_file(metric: Metric, comparison: Comparison, ratio: f64) -> Target {
    let against = Against::Server("qemu-fuse");
    Target { ours: OURS_AS_FILE, metric, comparison, ratio, against }
}

/// The kernel's loop device as it was before the patch of 2015.
const fn as_loop(metric: Metric, comparison: Comparison, ratio: f64) -> Target {
    let against = Against::Server("loop-buffered");
    Target { ours: OURS_AS_FILE, metric, comparison, ratio, against }
}

const READ_4K: &[Target] = &[
    target(Iops, AtLeast, 1.3, "qemu-native"),
    target(Iops, AtLeast, 1.3, "qemu-uring"),
    target(Iops, AtLeast, 1.3, "nbdkit"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-native"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-uring"),
    target(CpuUsPerIo, AtMost, 1.0, "nbdkit"),
    KEEPS_NOTHING,
    target(ContextSwitchesPerIo, AtMost, 0.5, "nbdkit"),
    as_file(Iops, AtLeast, 1.0),
    as_file(CpuUsPerIo, AtMost, 1.0),
];
const WRITE_4K: &[Target] = &[
    target(Iops, AtLeast, 1.2, "qemu-native"),
    target(Iops, AtLeast, 1.2, "qemu-uring"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-native"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-uring"),
    target(CpuUsPerIo, AtMost, 1.0, "nbdkit"),
    KEEPS_NOTHING,
    as_file(Iops, AtLeast, 1.0),
];
const LARGE: &[Target] = &[
    target(BytesPerS, AtLeast, 1.3, "qemu-native"),
    target(BytesPerS, AtLeast, 1.3, "qemu-uring"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-native"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-uring"),
    target(CpuUsPerIo, AtMost, 1.0, "nbdkit"),
    KEEPS_NOTHING,
    as_file(BytesPerS, AtLeast, 1.0),
];

const IN_EXT4: &[Target] =
    &[as_loop(Iops, AtLeast, 1.0), as_loop(PageCacheGrowthBytes, AtMost, 0.1)];

const fn case(
    name: &'static str,
    rw: &'static str,
    block_bytes: u64,
    targets: &'static [Target],
) -> Case {
    Case { name, on: On::Disk, rw, block_bytes, targets }
}

/// One of the four of the patch of 2015 (`block: loop: support DIO & AIO`).
const fn in_ext4(name: &'static str, rw: &'static str) -> Case {
    Case { name, on: On::Ext4, rw, block_bytes: 4 << 10, targets: IN_EXT4 }
}

/// All cases. Those that make a file system come last: it stays on the image.
pub(crate) const CASES: [Case; 8] = [
    case("read-4k", "randread", 4 << 10, READ_4K),
    case("write-4k", "randwrite", 4 << 10, WRITE_4K),
    case("read-128k", "randread", 128 << 10, LARGE),
    case("write-128k", "randwrite", 128 << 10, LARGE),
    in_ext4("ext4-randread", "randread"),
    in_ext4("ext4-read", "read"),
    in_ext4("ext4-randwrite", "randwrite"),
    in_ext4("ext4-write", "write"),
];

impl Case {
    /// Tells whether a subject can serve it: a file system wants a file or a device. An ext4 on
    /// the file of QEMU 7.2 could not be mounted through a loop device.
    pub(crate) fn takes(&self, subject: Subject) -> bool {
        use Subject::{Loop, NowaitFuse};
        self.on == On::Disk || matches!(subject, NowaitFuse | Loop(_))
    }
}

impl Subject {
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

impl Target {
    /// Returns the target in words.
    pub(crate) fn text(&self) -> String {
        let (metric, sign) = (self.metric.label(), self.comparison.sign());
        let of = if self.ours == OURS { "" } else { ", as a file" };
        match self.against {
            Against::Server(name) => format!("{metric} {sign} {:.2} × {name}{of}", self.ratio),
            Against::Bytes(bytes) => {
                format!("{metric} {sign} {:.2} × {} MB{of}", self.ratio, units::digits(bytes / 1e6))
            }
        }
    }
}
