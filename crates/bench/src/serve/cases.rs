//! What the client does, who serves it, and what must come out.

use crate::job::Comparison::{self, AtLeast, AtMost};
use crate::metric::Metric::{self, BytesPerS, ContextSwitchesPerIo, CpuUsPerIo, Iops};

/// Who serves the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// `nowait serve`, with this `--cache`.
    Nowait(&'static str),
    /// `qemu-nbd`, with these `--cache` and `--aio`.
    Qemu(&'static str, &'static str),
    /// `nbdkit file`: the kernel's page cache and threads.
    Nbdkit,
    /// Nobody: the client has the file itself, with direct I/O.
    File,
}

/// All of them, with their names.
pub(crate) const SUBJECTS: [(&str, Subject); 6] = [
    ("nowait", Subject::Nowait("none")),
    ("qemu-native", Subject::Qemu("none", "native")),
    ("qemu-uring", Subject::Qemu("none", "io_uring")),
    ("qemu-writeback", Subject::Qemu("writeback", "threads")),
    ("nbdkit", Subject::Nbdkit),
    ("file", Subject::File),
];

/// A job of the client, 32 requests deep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// fio's `--rw`.
    pub(crate) rw: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) targets: &'static [Target],
}

/// What must come out of `nowait`, compared with another server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) metric: Metric,
    pub(crate) comparison: Comparison,
    pub(crate) ratio: f64,
    pub(crate) against: &'static str,
}

const fn target(
    metric: Metric,
    comparison: Comparison,
    ratio: f64,
    against: &'static str,
) -> Target {
    Target { metric, comparison, ratio, against }
}

const READ_4K: &[Target] = &[
    target(Iops, AtLeast, 1.3, "qemu-native"),
    target(Iops, AtLeast, 1.3, "qemu-uring"),
    target(Iops, AtLeast, 1.3, "nbdkit"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-native"),
    target(CpuUsPerIo, AtMost, 1.0, "nbdkit"),
    target(ContextSwitchesPerIo, AtMost, 0.5, "nbdkit"),
];
const WRITE_4K: &[Target] = &[
    target(Iops, AtLeast, 1.2, "qemu-native"),
    target(Iops, AtLeast, 1.2, "qemu-uring"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-native"),
];
const LARGE: &[Target] = &[
    target(BytesPerS, AtLeast, 1.3, "qemu-native"),
    target(BytesPerS, AtLeast, 1.3, "qemu-uring"),
    target(CpuUsPerIo, AtMost, 1.0, "qemu-native"),
];

/// All cases.
pub(crate) const CASES: [Case; 4] = [
    Case { name: "read-4k", rw: "randread", block_bytes: 4 << 10, targets: READ_4K },
    Case { name: "write-4k", rw: "randwrite", block_bytes: 4 << 10, targets: WRITE_4K },
    Case { name: "read-128k", rw: "randread", block_bytes: 128 << 10, targets: LARGE },
    Case { name: "write-128k", rw: "randwrite", block_bytes: 128 << 10, targets: LARGE },
];

impl Subject {
    /// Returns what the reader of a report must know.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Nowait(_) => "nowait serve",
            Self::Qemu(_, "native") => "qemu-nbd on O_DIRECT and native AIO",
            Self::Qemu(_, "io_uring") => "qemu-nbd on O_DIRECT and io_uring",
            Self::Qemu(..) => "qemu-nbd on the kernel's page cache",
            Self::Nbdkit => "nbdkit file: the kernel's page cache and threads",
            Self::File => "no server: the client has the file itself, with O_DIRECT",
        }
    }
}

impl Target {
    /// Returns the target in words.
    pub(crate) fn text(&self) -> String {
        let (metric, sign) = (self.metric.label(), self.comparison.sign());
        format!("{metric} {sign} {:.2} × {}", self.ratio, self.against)
    }
}
