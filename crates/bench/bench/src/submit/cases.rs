//! The job table: what is measured, on what, and what it must show.

use std::path::{Path, PathBuf};

use crate::case::{Case, Subject, Target};
use crate::fio::Launch::{
    self, IoUring, Nowait, NowaitNoUring, NowaitOffload, NowaitPosix, PosixAio, System,
};
use crate::metric::Metric::{
    self, ContextSwitchesPerIo, CpuUsPerIo, Iops, LatencyUsP99, SubmitUsMax, SubmitUsMean,
    SubmitUsP999, SubmitUsP9999,
};

/// Where the file of a case lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file system on a disk.
    Disk,
    /// A file system in memory.
    Tmpfs,
}

/// The state of the file and of the page cache before each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The laid-out file; everything written back and the page cache dropped.
    Cold,
    /// The laid-out file, read into the page cache.
    Cached,
    /// No file: each write extends it.
    Absent,
    /// A new file of holes: each write fills one.
    Holes,
}

/// What fio is asked to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) place: Place,
    pub(crate) start: Start,
    /// fio's `rw`.
    pub(crate) rw: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) depth: u32,
    pub(crate) direct: bool,
    /// `O_SYNC`.
    pub(crate) sync: bool,
    /// Visits each block once before any block again, so that an uncached read stays uncached.
    pub(crate) random_map: bool,
    /// Threads of fio, each with its own part of the file and its own context.
    pub(crate) jobs: u32,
    /// Files of each context; the size is that of all of them.
    pub(crate) files: u32,
    /// More of fio's options.
    pub(crate) more: &'static [&'static str],
}

/// A row of the job table.
struct Row {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    job: Job,
    ways: &'static [Launch],
    targets: &'static [Target],
}

/// Against the system's library.
const fn at_most(metric: Metric, subject: &'static str, ratio: f64) -> Target {
    Target::at_most(metric, subject, ratio, "system")
}

const fn at_least(
    metric: Metric,
    subject: &'static str,
    ratio: f64,
    against: &'static str,
) -> Target {
    Target::at_least(metric, subject, ratio, against)
}

pub(crate) const BUFFERED: Job = Job {
    place: Place::Disk,
    start: Start::Cold,
    rw: "randread",
    block_bytes: 4 << 10,
    depth: 32,
    direct: false,
    sync: false,
    random_map: true,
    jobs: 1,
    files: 1,
    more: &[],
};

const SYNC_WRITE: Job = Job { block_bytes: 64 << 10, depth: 64, sync: true, ..BUFFERED };

const DIRECT: Job = Job { direct: true, random_map: false, ..BUFFERED };

const SYNC_TARGETS: &[Target] =
    &[at_most(SubmitUsMean, "nowait", 0.1), at_least(Iops, "nowait", 1.0, "system")];

/// Every case, in the order of the report.
const SUBMIT: [Row; 9] = [
    Row {
        name: "a",
        title: "64 KiB random reads, buffered and uncached, 64 in flight",
        about: "The kernel's AIO reads buffered files inside io_submit, one after another.",
        job: Job { block_bytes: 64 << 10, depth: 64, ..BUFFERED },
        ways: &[System, Nowait, NowaitNoUring, IoUring],
        targets: &[
            at_most(SubmitUsMean, "nowait", 0.1),
            at_most(SubmitUsP999, "nowait", 0.1),
            at_least(Iops, "nowait", 1.4, "system"),
            at_least(Iops, "nowait", 0.9, "io_uring"),
            at_most(SubmitUsMean, "nowait-no-uring", 0.1),
            at_most(SubmitUsP999, "nowait-no-uring", 0.1),
            at_least(Iops, "nowait-no-uring", 1.3, "system"),
        ],
    },
    Row {
        name: "b",
        title: "4 KiB random reads and writes, buffered, 32 in flight, on disk",
        about: "The job of 2012: writes enter the page cache while reads wait for the disk.",
        job: Job { rw: "randrw", ..BUFFERED },
        ways: &[System, Nowait, NowaitNoUring, IoUring],
        targets: &[
            at_most(SubmitUsMean, "nowait", 0.2),
            at_most(SubmitUsP999, "nowait", 0.1),
            at_least(Iops, "nowait", 1.5, "system"),
            at_least(Iops, "nowait", 0.9, "io_uring"),
            at_least(Iops, "nowait-no-uring", 1.2, "system"),
        ],
    },
    Row {
        name: "b-tmpfs",
        title: "4 KiB random reads and writes, buffered, 32 in flight, in memory",
        about: "Nothing ever waits here: what remains is the cost of the path itself.",
        job: Job {
            place: Place::Tmpfs,
            start: Start::Cached,
            rw: "randrw",
            random_map: false,
            ..BUFFERED
        },
        ways: &[System, Nowait, NowaitOffload],
        targets: &[
            at_most(SubmitUsMean, "nowait", 1.0),
            at_least(Iops, "nowait", 1.0, "system"),
            at_most(SubmitUsMean, "nowait-offload", 0.5),
        ],
    },
    Row {
        name: "c-random",
        title: "64 KiB random writes, O_SYNC, buffered, 64 in flight",
        about: "Each write must be on the disk before it completes.",
        job: Job { rw: "randwrite", ..SYNC_WRITE },
        ways: &[System, Nowait],
        targets: SYNC_TARGETS,
    },
    Row {
        name: "c-sequential",
        title: "64 KiB sequential writes, O_SYNC, buffered, 64 in flight",
        about: "As above, in the order of the file.",
        job: Job { rw: "write", ..SYNC_WRITE },
        ways: &[System, Nowait],
        targets: SYNC_TARGETS,
    },
    Row {
        name: "d",
        title: "4 KiB random reads, O_DIRECT, 32 in flight",
        about: "The kernel's AIO is good at this: nowait must not cost anything.",
        job: DIRECT,
        ways: &[System, Nowait],
        targets: &[at_least(Iops, "nowait", 0.97, "system"), at_most(CpuUsPerIo, "nowait", 1.1)],
    },
    Row {
        name: "e-extend",
        title: "4 KiB writes extending the file, O_DIRECT, 32 in flight",
        about: "The kernel's AIO does a write past the end of the file inside io_submit.",
        job: Job { start: Start::Absent, rw: "write", ..DIRECT },
        ways: &[System, Nowait],
        targets: &[at_most(SubmitUsP999, "nowait", 0.1)],
    },
    Row {
        name: "e-holes",
        title: "4 KiB random writes filling holes, O_DIRECT, 32 in flight",
        about: "Each write allocates a block, and now and then waits for the journal.",
        job: Job { start: Start::Holes, rw: "randwrite", random_map: true, ..DIRECT },
        ways: &[System, Nowait],
        targets: &[at_most(SubmitUsP999, "nowait", 0.1)],
    },
    Row {
        name: "f",
        title: "4 KiB random reads, buffered, all of it cached, 32 in flight",
        about: "Nothing waits: the data are copied at once.",
        job: Job { start: Start::Cached, random_map: false, ..BUFFERED },
        ways: &[System, Nowait],
        targets: &[at_least(Iops, "nowait", 1.0, "system")],
    },
];

/// The cases of POSIX AIO, in the order of the report.
const POSIX: [Row; 2] = [
    Row {
        name: "direct",
        title: "64 KiB random reads, O_DIRECT, 64 in flight on one file",
        about: "The C library runs the requests of a descriptor one after another, in a thread.",
        job: Job { block_bytes: 64 << 10, depth: 64, ..DIRECT },
        ways: &[PosixAio, NowaitPosix],
        targets: &[at_least(Iops, "nowait-posixaio", 2.0, "posixaio")],
    },
    Row {
        name: "buffered",
        title: "64 KiB random reads, uncached, 64 in flight on one file",
        about: "As above, through the kernel's page cache.",
        job: Job { block_bytes: 64 << 10, depth: 64, ..BUFFERED },
        ways: &[PosixAio, NowaitPosix],
        targets: &[at_least(Iops, "nowait-posixaio", 1.2, "posixaio")],
    },
];

/// The columns of a case.
pub(crate) const COLUMNS: &[Metric] = &[
    SubmitUsMean,
    SubmitUsP999,
    SubmitUsP9999,
    SubmitUsMax,
    Iops,
    LatencyUsP99,
    CpuUsPerIo,
    ContextSwitchesPerIo,
];

/// A job, and the way in which fio does it.
pub(crate) type Way = (Launch, Job);

/// Makes the cases of `submit` or of `posix`.
pub(crate) fn cases(workload: &str) -> Vec<Case<Way>> {
    let rows: &[Row] = if workload == "posix" { &POSIX } else { &SUBMIT };
    let case = |row: &Row| Case {
        name: row.name,
        title: row.title.to_owned(),
        about: row.about,
        source: String::new(),
        columns: COLUMNS,
        subjects: row.ways.iter().map(|way| subject(*way, row.job)).collect(),
        targets: row.targets.to_vec(),
    };
    rows.iter().map(case).collect()
}

/// Does a job in one of the ways.
pub(crate) fn subject(way: Launch, job: Job) -> Subject<Way> {
    Subject { name: way.name(), engine: (way.name(), way.describe()), job: (way, job) }
}

impl Job {
    /// Returns the files of the job, of which `path` is the first or the stem.
    pub(crate) fn paths(&self, path: &Path) -> Vec<PathBuf> {
        match self.files {
            1 => vec![path.to_owned()],
            files => (0..files).map(|index| path.with_extension(index.to_string())).collect(),
        }
    }

    /// Returns `true` if the job never writes.
    pub(crate) fn reads_only(&self) -> bool {
        matches!(self.rw, "read" | "randread")
    }

    /// Returns how many bytes a run moves that writes and verifies `size_bytes`, at least: what it
    /// writes is read again.
    pub(crate) fn verified_bytes(&self, size_bytes: u64) -> u64 {
        match self.rw {
            "read" | "randread" => size_bytes,
            // About half of it is written.
            "randrw" => size_bytes + size_bytes / 4,
            _ => size_bytes * 2,
        }
    }

    /// Returns how many bytes a run reads from the disk for each byte it moves, at least and at
    /// most; `None` where nothing can be said.
    pub(crate) fn disk_reads(&self) -> Option<(f64, f64)> {
        match self.start {
            Start::Cached => Some((0.0, 0.02)),
            Start::Cold if self.direct => None,
            Start::Cold if self.reads_only() => Some((0.95, f64::INFINITY)),
            Start::Cold if self.rw == "randrw" => Some((0.45, f64::INFINITY)),
            Start::Cold | Start::Absent | Start::Holes => None,
        }
    }

    /// Tells whether runs end when every block has been visited, even before their time.
    ///
    /// A second lap would find uncached pages cached, and would only overwrite what was extended.
    pub(crate) fn ends_after_one_lap(&self) -> bool {
        match self.start {
            Start::Cold => !self.direct,
            Start::Cached => false,
            Start::Absent | Start::Holes => true,
        }
    }

    /// Tells whether the case makes a new file in each run.
    pub(crate) fn makes_fresh_file(&self) -> bool {
        matches!(self.start, Start::Absent | Start::Holes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn the_cases_are_well_formed() {
        for workload in ["submit", "posix"] {
            let cases = cases(workload);
            crate::testing::check(&cases);
            let reference = |case: &Case<Way>| case.has("system") || case.has("posixaio");
            assert!(cases.iter().all(reference), "{workload}");
        }
    }

    #[test]
    fn the_list_names_every_case_and_target() {
        let text = case::list(&cases("submit"));
        assert!(text.contains("c-sequential") && text.contains("IOPS of nowait ≥ 1.40 × system"));
    }

    #[test]
    fn a_letter_selects_all_of_its_cases() {
        let named = |name| cases("submit").iter().filter(|case| case.answers_to(name)).count();
        assert_eq!((named("a"), named("b"), named("c"), named("e")), (1, 2, 2, 2));
        assert_eq!((named("c-random"), named("b-tmpfs"), named("z")), (1, 1, 0));
        assert_eq!(named(""), 0);
    }
}
