//! The job table: what is measured, on what, and what it must show.

use crate::metric::Metric;
use crate::subject::Subject::{
    self, IoUring, Nowait, NowaitNoUring, NowaitOffload, NowaitPosix, NowaitPosixUser, PosixAio,
    System,
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
    /// fio's `rw`.
    pub(crate) rw: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) depth: u32,
    pub(crate) direct: bool,
    /// `O_SYNC`.
    pub(crate) sync: bool,
    /// Visits each block once before any block again, so that an uncached read stays uncached.
    pub(crate) random_map: bool,
}

/// The side of the target that is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    AtMost,
    AtLeast,
}

impl Comparison {
    /// Returns the mathematical sign.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "≤",
            Self::AtLeast => "≥",
        }
    }
}

/// A target: `metric` of `subject` against `against`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Criterion {
    pub(crate) metric: Metric,
    pub(crate) subject: Subject,
    pub(crate) comparison: Comparison,
    pub(crate) ratio: f64,
    pub(crate) against: Subject,
}

impl Criterion {
    /// Returns the target in words, such as `submit mean of nowait ≤ 0.10 × system`.
    pub(crate) fn text(&self) -> String {
        let (metric, sign) = (self.metric.label(), self.comparison.sign());
        let [subject, against] = [self.subject, self.against].map(Subject::name);
        format!("{metric} of {subject} {sign} {:.2} × {against}", self.ratio)
    }
}

/// One row of the job table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// The name on the command line and in the JSON.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// One sentence on what the case is about.
    pub(crate) about: &'static str,
    pub(crate) place: Place,
    pub(crate) start: Start,
    pub(crate) job: Job,
    pub(crate) subjects: &'static [Subject],
    pub(crate) criteria: &'static [Criterion],
}

const fn at_most(metric: Metric, subject: Subject, ratio: f64) -> Criterion {
    Criterion { metric, subject, comparison: Comparison::AtMost, ratio, against: System }
}

const fn at_least(metric: Metric, subject: Subject, ratio: f64, against: Subject) -> Criterion {
    Criterion { metric, subject, comparison: Comparison::AtLeast, ratio, against }
}

const BUFFERED: Job = Job {
    rw: "randread",
    block_bytes: 4 << 10,
    depth: 32,
    direct: false,
    sync: false,
    random_map: true,
};

const SYNC_WRITE: Job = Job { block_bytes: 64 << 10, depth: 64, sync: true, ..BUFFERED };

const DIRECT: Job = Job { direct: true, random_map: false, ..BUFFERED };

const SYNC_TARGETS: &[Criterion] =
    &[at_most(Metric::SubmitUsMean, Nowait, 0.1), at_least(Metric::Iops, Nowait, 1.0, System)];

/// Every case, in the order of the report.
pub(crate) const CASES: [Case; 9] = [
    Case {
        name: "a",
        title: "64 KiB random reads, buffered and uncached, 64 in flight",
        about: "The kernel's AIO reads buffered files inside io_submit, one after another.",
        place: Place::Disk,
        start: Start::Cold,
        job: Job { block_bytes: 64 << 10, depth: 64, ..BUFFERED },
        subjects: &[System, Nowait, NowaitNoUring, IoUring],
        criteria: &[
            at_most(Metric::SubmitUsMean, Nowait, 0.1),
            at_most(Metric::SubmitUsP999, Nowait, 0.1),
            at_least(Metric::Iops, Nowait, 1.4, System),
            at_least(Metric::Iops, Nowait, 0.9, IoUring),
            at_most(Metric::SubmitUsMean, NowaitNoUring, 0.1),
            at_most(Metric::SubmitUsP999, NowaitNoUring, 0.1),
            at_least(Metric::Iops, NowaitNoUring, 1.3, System),
        ],
    },
    Case {
        name: "b",
        title: "4 KiB random reads and writes, buffered, 32 in flight, on disk",
        about: "The job of 2012: writes enter the page cache while reads wait for the disk.",
        place: Place::Disk,
        start: Start::Cold,
        job: Job { rw: "randrw", ..BUFFERED },
        subjects: &[System, Nowait, NowaitNoUring, IoUring],
        criteria: &[
            at_most(Metric::SubmitUsMean, Nowait, 0.2),
            at_most(Metric::SubmitUsP999, Nowait, 0.1),
            at_least(Metric::Iops, Nowait, 1.5, System),
            at_least(Metric::Iops, Nowait, 0.9, IoUring),
            at_least(Metric::Iops, NowaitNoUring, 1.2, System),
        ],
    },
    Case {
        name: "b-tmpfs",
        title: "4 KiB random reads and writes, buffered, 32 in flight, in memory",
        about: "Nothing ever waits here: what remains is the cost of the path itself.",
        place: Place::Tmpfs,
        start: Start::Cached,
        job: Job { rw: "randrw", random_map: false, ..BUFFERED },
        subjects: &[System, Nowait, NowaitOffload],
        criteria: &[
            at_most(Metric::SubmitUsMean, Nowait, 1.0),
            at_least(Metric::Iops, Nowait, 1.0, System),
            at_most(Metric::SubmitUsMean, NowaitOffload, 0.5),
        ],
    },
    Case {
        name: "c-random",
        title: "64 KiB random writes, O_SYNC, buffered, 64 in flight",
        about: "Each write must be on the disk before it completes.",
        place: Place::Disk,
        start: Start::Cold,
        job: Job { rw: "randwrite", ..SYNC_WRITE },
        subjects: &[System, Nowait],
        criteria: SYNC_TARGETS,
    },
    Case {
        name: "c-sequential",
        title: "64 KiB sequential writes, O_SYNC, buffered, 64 in flight",
        about: "As above, in the order of the file.",
        place: Place::Disk,
        start: Start::Cold,
        job: Job { rw: "write", ..SYNC_WRITE },
        subjects: &[System, Nowait],
        criteria: SYNC_TARGETS,
    },
    Case {
        name: "d",
        title: "4 KiB random reads, O_DIRECT, 32 in flight",
        about: "The kernel's AIO is good at this: nowait must not cost anything.",
        place: Place::Disk,
        start: Start::Cold,
        job: DIRECT,
        subjects: &[System, Nowait],
        criteria: &[
            at_least(Metric::Iops, Nowait, 0.97, System),
            at_most(Metric::CpuUsPerIo, Nowait, 1.1),
        ],
    },
    Case {
        name: "e-extend",
        title: "4 KiB writes extending the file, O_DIRECT, 32 in flight",
        about: "The kernel's AIO does a write past the end of the file inside io_submit.",
        place: Place::Disk,
        start: Start::Absent,
        job: Job { rw: "write", ..DIRECT },
        subjects: &[System, Nowait],
        criteria: &[at_most(Metric::SubmitUsP999, Nowait, 0.1)],
    },
    Case {
        name: "e-holes",
        title: "4 KiB random writes filling holes, O_DIRECT, 32 in flight",
        about: "Each write allocates a block, and now and then waits for the journal.",
        place: Place::Disk,
        start: Start::Holes,
        job: Job { rw: "randwrite", random_map: true, ..DIRECT },
        subjects: &[System, Nowait],
        criteria: &[at_most(Metric::SubmitUsP999, Nowait, 0.1)],
    },
    Case {
        name: "f",
        title: "4 KiB random reads, buffered, all of it cached, 32 in flight",
        about: "Nothing waits: the data are copied at once.",
        place: Place::Disk,
        start: Start::Cached,
        job: Job { random_map: false, ..BUFFERED },
        subjects: &[System, Nowait],
        criteria: &[at_least(Metric::Iops, Nowait, 1.0, System)],
    },
];

/// The cases of POSIX AIO, in the order of the report.
pub(crate) const POSIX_CASES: [Case; 2] = [
    Case {
        name: "direct",
        title: "64 KiB random reads, O_DIRECT, 64 in flight on one file",
        about: "The C library runs the requests of a descriptor one after another, in a thread.",
        place: Place::Disk,
        start: Start::Cold,
        job: Job { block_bytes: 64 << 10, depth: 64, ..DIRECT },
        subjects: &[PosixAio, NowaitPosix],
        criteria: &[at_least(Metric::Iops, NowaitPosix, 2.0, PosixAio)],
    },
    Case {
        name: "buffered",
        title: "64 KiB random reads, uncached, 64 in flight on one file",
        about: "As above, through the kernel's page cache or nowait's own.",
        place: Place::Disk,
        start: Start::Cold,
        job: Job { block_bytes: 64 << 10, depth: 64, ..BUFFERED },
        subjects: &[PosixAio, NowaitPosix, NowaitPosixUser],
        criteria: &[
            at_least(Metric::Iops, NowaitPosix, 1.2, PosixAio),
            at_least(Metric::Iops, NowaitPosixUser, 2.0, PosixAio),
        ],
    },
];

impl Case {
    /// Tells whether `name` on the command line means this case: its name, or its letter.
    pub(crate) fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.name.starts_with(name) && name.len() == 1
    }

    /// Tells whether runs end when every block has been visited, even before their time.
    ///
    /// A second lap would find uncached pages cached, and would only overwrite what was extended.
    pub(crate) fn ends_after_one_lap(&self) -> bool {
        match self.start {
            Start::Cold => !self.job.direct,
            Start::Cached => false,
            Start::Absent | Start::Holes => true,
        }
    }

    /// Tells whether the case works on the large laid-out file.
    pub(crate) fn reads_cold_file(&self) -> bool {
        self.start == Start::Cold
    }

    /// Tells whether the case makes a new file in each run.
    pub(crate) fn makes_fresh_file(&self) -> bool {
        matches!(self.start, Start::Absent | Start::Holes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_about_subjects_of_its_case() {
        for case in CASES.iter().chain(&POSIX_CASES) {
            let reference = case.subjects.contains(&System) || case.subjects.contains(&PosixAio);
            assert!(reference, "{}", case.name);
            for criterion in case.criteria {
                assert!(case.subjects.contains(&criterion.subject), "{}", case.name);
                assert!(case.subjects.contains(&criterion.against), "{}", case.name);
                let good = criterion.metric.more_is_better();
                assert_eq!(good, criterion.comparison == Comparison::AtLeast, "{}", case.name);
            }
        }
    }

    #[test]
    fn a_target_reads_as_a_sentence() {
        assert_eq!(CASES[0].criteria[0].text(), "submit mean of nowait ≤ 0.10 × system");
    }

    #[test]
    fn a_letter_selects_all_of_its_cases() {
        let named = |name| CASES.iter().filter(|case| case.answers_to(name)).count();
        assert_eq!((named("a"), named("b"), named("c"), named("e")), (1, 2, 2, 2));
        assert_eq!((named("c-random"), named("b-tmpfs"), named("z")), (1, 1, 0));
        assert_eq!(named(""), 0);
    }
}
