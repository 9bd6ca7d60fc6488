//! The cases: a program, what it does, and the ways to run it.

use crate::case::{self, Subject, Target};
use crate::metric::Metric::{
    self, BytesPerS, CpuUsPerOperation, HeldUpUsMax, HeldUpUsP99, Iops, LatencyUsP99,
};

/// What a program is asked to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Load {
    /// QEMU's block layer writes to a sparse raw image: fio's `--rw` and `--bs`.
    Qemu { rw: &'static str, block_bytes: u64 },
}

/// By which interface a program does its I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `io_submit`.
    Aio,
    /// Its own `io_uring` mode.
    Uring,
    /// Its own threads.
    Threads,
}

/// How a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) mode: Mode,
    pub(crate) preloads: bool,
    /// A filter refuses `io_uring` with EPERM.
    pub(crate) forbids_uring: bool,
}

/// All that a run is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Job {
    pub(crate) load: Load,
    pub(crate) way: Way,
}

/// The subject that all others are compared with.
pub(crate) const ITSELF: &str = "system";
const NOWAIT: &str = "nowait";
const NO_URING: &str = "nowait-no-uring";

/// The names of ways, and what the reader of a report must know.
const WAYS: [(&str, &str, Mode, bool, bool); 5] = [
    (ITSELF, "the program by itself", Mode::Aio, false, false),
    (NOWAIT, "the same with libnowait_preload.so", Mode::Aio, true, false),
    (
        NO_URING,
        "nowait while a seccomp filter refuses io_uring (EPERM), as containers do",
        Mode::Aio,
        true,
        true,
    ),
    ("io_uring", "the program's own io_uring mode", Mode::Uring, false, false),
    ("threads", "the program's own threads", Mode::Threads, false, false),
];

/// A case before its subjects are made.
struct Row {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    load: Load,
    /// The first column is the throughput of the overview.
    columns: &'static [Metric],
    /// The ways that this program has.
    ways: &'static [&'static str],
    targets: Vec<Target>,
}

const QEMU_WAYS: &[&str] = &[ITSELF, NOWAIT, NO_URING, "io_uring", "threads"];
const QEMU: &str = "qemu-storage-daemon has a sparse raw image (cache.direct=on, aio=native) and \
                    another disk that needs no I/O; its main loop serves both, as that of a \
                    virtual machine does. Held up is the other disk's request: what a guest sees \
                    of the time inside io_submit.";

fn qemu(name: &'static str, title: &'static str, load: Load, columns: &'static [Metric]) -> Row {
    let stalls = |name| Target::at_most(HeldUpUsP99, name, 0.5, ITSELF);
    let targets =
        vec![stalls(NOWAIT), stalls(NO_URING), Target::at_least(columns[0], NOWAIT, 1.0, ITSELF)];
    Row { name, title, about: QEMU, load, columns, ways: QEMU_WAYS, targets }
}

fn rows() -> Vec<Row> {
    vec![
        qemu(
            "qemu-sparse-4k",
            "QEMU writes to a sparse raw image, random 4 KiB, 32 deep",
            Load::Qemu { rw: "randwrite", block_bytes: 4 << 10 },
            &[Iops, LatencyUsP99, HeldUpUsMax, CpuUsPerOperation, HeldUpUsP99],
        ),
        qemu(
            "qemu-sparse-64k",
            "QEMU writes to a sparse raw image, 64 KiB in order, 32 deep",
            Load::Qemu { rw: "write", block_bytes: 64 << 10 },
            &[BytesPerS, LatencyUsP99, HeldUpUsMax, CpuUsPerOperation, HeldUpUsP99],
        ),
    ]
}

/// Makes all cases.
pub(crate) fn cases() -> Vec<case::Case<Job>> {
    rows().into_iter().map(Row::into_case).collect()
}

impl Row {
    fn into_case(self) -> case::Case<Job> {
        let Self { name, title, about, load, columns, ways, targets } = self;
        let wanted = WAYS.into_iter().filter(|(way, ..)| ways.contains(way));
        let subject = |(name, about, mode, preloads, forbids_uring)| Subject {
            name,
            engine: (name, about),
            job: Job { load, way: Way { mode, preloads, forbids_uring } },
        };
        case::Case {
            name,
            title: title.to_owned(),
            about,
            source: String::new(),
            columns,
            subjects: wanted.map(subject).collect(),
            targets,
        }
        .with_possible_targets()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_compares_a_program_with_itself_and_has_the_columns_of_the_overview() {
        for case in cases() {
            assert_eq!(case.subjects[0].name, ITSELF, "{}", case.name);
            assert!(case.subjects.iter().any(|subject| subject.job.way.preloads), "{}", case.name);
            assert_eq!(case.columns[1..4], [LatencyUsP99, HeldUpUsMax, CpuUsPerOperation]);
            assert!(case.columns[0].more_is_better() && !case.about.is_empty(), "{}", case.name);
        }
    }
}
