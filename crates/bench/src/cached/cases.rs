//! The cases, the ways to do each, and what must come out.

use super::spec::{Engine, Warm};
use crate::job::Comparison::{self, AtLeast, AtMost};
use crate::metric::Metric::{
    self, BytesPerS, CpuUsPerIo, Iops, IopsPerCore, SubmitUsP50, SubmitUsP999,
};
use crate::offsets::Access;

/// A size as a share of `--size`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share(pub(crate) u64, pub(crate) u64);

/// What all subjects of a case do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) write: bool,
    pub(crate) sync: bool,
    pub(crate) access: Access,
    pub(crate) warm: Warm,
    pub(crate) fsync: bool,
    pub(crate) batches: bool,
    pub(crate) depth: usize,
    pub(crate) block_bytes: usize,
    pub(crate) set: Share,
    pub(crate) pool: Share,
}

/// One way to do it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) engine: Engine,
    pub(crate) kaio: bool,
    pub(crate) direct: bool,
    pub(crate) threads: usize,
    /// Differs from the case.
    pub(crate) depth: Option<usize>,
    pub(crate) block_bytes: Option<usize>,
    pub(crate) warm: Option<Warm>,
}

/// What must come out: `metric` of `subject`, compared with another figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) metric: Metric,
    pub(crate) subject: &'static str,
    pub(crate) comparison: Comparison,
    pub(crate) ratio: f64,
    pub(crate) against: &'static str,
    /// Of `against`; the same in nearly all targets.
    pub(crate) against_metric: Metric,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What else a reader must know.
    pub(crate) about: &'static str,
    pub(crate) work: Work,
    pub(crate) subjects: &'static [Subject],
    pub(crate) targets: &'static [Target],
}

const fn subject(name: &'static str, engine: Engine) -> Subject {
    Subject {
        name,
        engine,
        kaio: false,
        direct: false,
        threads: 1,
        depth: None,
        block_bytes: None,
        warm: None,
    }
}

const NOWAIT: Subject = subject("nowait", Engine::Queue);
const KAIO: Subject = Subject { kaio: true, ..subject("nowait-kaio", Engine::Queue) };
const LOWER: Subject = subject("nowait-submission", Engine::Submission);
const GUARD: Subject = subject("nowait-guard", Engine::Guard);
const MEMCPY: Subject = subject("memcpy", Engine::Memcpy);
const MMAP: Subject = subject("mmap", Engine::Mmap);
const PSYNC: Subject = subject("psync", Engine::Psync);
const PSYNC_AHEAD: Subject = subject("psync-ahead", Engine::PsyncAhead);
const PREADV2: Subject = subject("preadv2-nowait", Engine::Preadv2);
const URING: Subject = subject("io_uring", Engine::Uring);
const DEFER: Subject = subject("io_uring-defer", Engine::UringDefer);
const LIBAIO: Subject = subject("libaio", Engine::Libaio);
const DIRECT_LIBAIO: Subject = Subject { direct: true, ..subject("direct-libaio", Engine::Libaio) };
const DIRECT_URING: Subject = Subject { direct: true, ..subject("direct-io_uring", Engine::Uring) };
/// The device, as fast as it goes in order.
const DEVICE: Subject =
    Subject { name: "direct-1m", depth: Some(8), block_bytes: Some(1 << 20), ..DIRECT_LIBAIO };

const fn at_least(metric: Metric, of: &'static str, ratio: f64, against: &'static str) -> Target {
    let comparison = AtLeast;
    Target { metric, subject: of, comparison, ratio, against, against_metric: metric }
}

const fn at_most(metric: Metric, of: &'static str, ratio: f64, against: &'static str) -> Target {
    Target { comparison: AtMost, ..at_least(metric, of, ratio, against) }
}

/// No call of submit waits for the device: even a rare one takes a few times as long as most.
const fn submit_never_waits(of: &'static str) -> Target {
    let target = at_most(SubmitUsP999, of, 20.0, of);
    Target { against_metric: SubmitUsP50, ..target }
}

const CACHED: Work = Work {
    write: false,
    sync: false,
    access: Access::Random,
    warm: Warm::All,
    fsync: false,
    batches: true,
    depth: 32,
    block_bytes: 4 << 10,
    set: Share(1, 1),
    pool: Share(5, 4),
};

const COLD: Work = Work {
    warm: Warm::Nothing,
    batches: false,
    depth: 64,
    block_bytes: 64 << 10,
    set: Share(4, 1),
    pool: Share(1, 2),
    ..CACHED
};

const SYNC_WRITE: Work =
    Work { write: true, sync: true, set: Share(1, 2), pool: Share(1, 4), ..COLD };

const SYNC_SUBJECTS: &[Subject] = &[NOWAIT, KAIO, LIBAIO, URING, DIRECT_LIBAIO, DIRECT_URING];

const SYNC_TARGETS: &[Target] = &[
    at_least(Iops, "nowait", 2.2, "libaio"),
    at_least(Iops, "nowait", 0.95, "direct-libaio"),
    at_least(Iops, "nowait-kaio", 0.9, "nowait"),
    submit_never_waits("nowait"),
];

/// Every case, in the order of the report.
pub(crate) const CASES: [Case; 13] = [
    Case {
        name: "a-4k",
        title: "4 KiB random reads of a large set, all cached, in batches of 32",
        about: "Memory is the limit: copies from random pages of huge pages are the ceiling.",
        work: CACHED,
        subjects: &[NOWAIT, LOWER, KAIO, MEMCPY, MMAP, PSYNC, PREADV2, URING, DEFER, LIBAIO],
        targets: &[
            at_least(IopsPerCore, "nowait", 0.75, "memcpy"),
            at_least(IopsPerCore, "nowait", 1.8, "psync"),
            at_least(IopsPerCore, "nowait", 1.7, "io_uring"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
            submit_never_waits("nowait"),
        ],
    },
    Case {
        name: "a-4k-small",
        title: "4 KiB random reads of a small set, all cached, in batches of 32",
        about: "The set fits a large third-level cache: what a look-up costs shows.",
        work: Work { set: Share(1, 32), pool: Share(1, 8), ..CACHED },
        subjects: &[NOWAIT, LOWER, KAIO, MEMCPY, PSYNC, URING, DEFER, LIBAIO],
        targets: &[
            at_least(IopsPerCore, "nowait", 2.5, "io_uring"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Case {
        name: "a-512",
        title: "512 byte random reads, all cached, in batches of 32",
        about: "Little is copied: the cost of a request shows.",
        work: Work { block_bytes: 512, ..CACHED },
        subjects: &[NOWAIT, LOWER, KAIO, MEMCPY, PSYNC, URING, DEFER],
        targets: &[
            at_least(IopsPerCore, "nowait", 3.0, "io_uring"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Case {
        name: "a-64k",
        title: "64 KiB random reads, all cached, in batches of 32",
        about: "The copy is nearly everything.",
        work: Work { block_bytes: 64 << 10, ..CACHED },
        subjects: &[NOWAIT, LOWER, KAIO, MEMCPY, PSYNC, URING],
        targets: &[
            at_least(IopsPerCore, "nowait", 1.25, "psync"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Case {
        name: "a-threads",
        title: "4 KiB random reads, all cached, one thread and two",
        about: "Each thread has a queue of its own.",
        work: CACHED,
        subjects: &[
            NOWAIT,
            Subject { name: "nowait-2", threads: 2, ..NOWAIT },
            MEMCPY,
            Subject { name: "memcpy-2", threads: 2, ..MEMCPY },
            Subject { name: "psync-2", threads: 2, ..PSYNC },
        ],
        targets: &[at_least(Iops, "nowait-2", 1.9, "nowait")],
    },
    Case {
        name: "b",
        title: "4 KiB random reads without a copy, all cached",
        about: "Pages are lent; one word at either end of each is looked at.",
        work: CACHED,
        subjects: &[GUARD, PSYNC],
        targets: &[at_least(IopsPerCore, "nowait-guard", 6.0, "psync")],
    },
    Case {
        name: "c",
        title: "64 KiB random reads, uncached, 64 in flight",
        about: "No block is read twice.",
        work: COLD,
        subjects: &[NOWAIT, KAIO, LIBAIO, URING, DIRECT_LIBAIO, DIRECT_URING],
        targets: &[
            at_least(Iops, "nowait", 0.97, "direct-libaio"),
            at_least(Iops, "nowait", 1.6, "io_uring"),
            at_most(CpuUsPerIo, "nowait", 0.6, "io_uring"),
            at_least(Iops, "nowait-kaio", 0.9, "nowait"),
            submit_never_waits("nowait"),
        ],
    },
    Case {
        name: "d",
        title: "4 KiB random reads, 32 in flight, of a set twice as large as our pool",
        about: "The kernel's cache has every other 64 KiB before the run, and grows during it.",
        work: Work {
            access: Access::Uniform,
            warm: Warm::Half,
            batches: false,
            set: Share(2, 1),
            pool: Share(1, 1),
            ..CACHED
        },
        subjects: &[NOWAIT, KAIO, LIBAIO, URING, DIRECT_LIBAIO, DIRECT_URING],
        targets: &[
            at_least(Iops, "nowait", 1.0, "io_uring"),
            at_least(Iops, "nowait", 1.0, "direct-libaio"),
            at_least(Iops, "nowait", 1.0, "direct-io_uring"),
            at_least(Iops, "nowait-kaio", 0.9, "nowait"),
            submit_never_waits("nowait"),
        ],
    },
    Case {
        name: "e",
        title: "sequential reads in 64 KiB requests, uncached",
        about: "One request at a time, like a program that knows no better, and eight. We read up \
                to 2 MiB ahead, the kernel by itself 128 KiB on most devices: judged is the peer \
                that is told of as much ahead, psync-ahead.",
        work: Work { access: Access::Sequential, depth: 1, ..COLD },
        subjects: &[
            NOWAIT,
            Subject { name: "nowait-8", depth: Some(8), ..NOWAIT },
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
    Case {
        name: "f-random",
        title: "64 KiB random writes, O_DSYNC, 64 in flight",
        about: "Every block has been written before.",
        work: SYNC_WRITE,
        subjects: SYNC_SUBJECTS,
        targets: SYNC_TARGETS,
    },
    Case {
        name: "f-sequential",
        title: "64 KiB sequential writes, O_DSYNC, 64 in flight",
        about: "Every block has been written before.",
        work: Work { access: Access::Sequential, ..SYNC_WRITE },
        subjects: SYNC_SUBJECTS,
        targets: SYNC_TARGETS,
    },
    Case {
        name: "g-write",
        title: "buffered sequential writes of 64 KiB, then fsync",
        about: "Over blocks that have been written before; one lap, the fsync in the time.",
        work: Work {
            sync: false,
            fsync: true,
            access: Access::Sequential,
            depth: 32,
            batches: true,
            pool: Share(5, 4),
            ..SYNC_WRITE
        },
        subjects: &[NOWAIT, KAIO, PSYNC, DEVICE],
        targets: &[
            at_least(BytesPerS, "nowait", 1.3, "psync"),
            at_least(BytesPerS, "nowait-kaio", 0.9, "nowait"),
        ],
    },
    Case {
        name: "g-overwrite",
        title: "4 KiB random writes over cached pages, in batches of 32",
        about: "Less than what makes either cache write back. The kernel's has folios of one \
                page, and for the last peer those of a sequential read.",
        work: Work { write: true, set: Share(1, 4), warm: Warm::All, ..CACHED },
        subjects: &[
            NOWAIT,
            KAIO,
            Subject { warm: Some(Warm::Pages), ..PSYNC },
            Subject { name: "psync-large", ..PSYNC },
        ],
        targets: &[
            at_least(IopsPerCore, "nowait", 2.5, "psync"),
            at_least(IopsPerCore, "nowait-kaio", 0.9, "nowait"),
            submit_never_waits("nowait"),
        ],
    },
];

impl Share {
    /// Returns the size, a multiple of 2 MiB, and at least that.
    pub(crate) fn of(self, size_bytes: u64) -> u64 {
        (size_bytes * self.0 / self.1).max(1).next_multiple_of(2 << 20)
    }
}

impl Case {
    /// Tells whether `name` on the command line means this case: its name, or its letter.
    pub(crate) fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.name.starts_with(name) && name.len() == 1
    }

    /// Returns what cases have in common that differ in the block size only.
    pub(crate) fn family(&self) -> Option<&'static str> {
        let of_sizes = ["a-512", "a-4k", "a-64k"].contains(&self.name);
        of_sizes.then_some("random reads of a large set, all cached, in batches of 32")
    }

    /// Tells whether runs begin with empty caches.
    pub(crate) fn is_cold(&self) -> bool {
        matches!(self.work.warm, Warm::Nothing | Warm::Half)
    }
}

impl Subject {
    /// Returns what the reader of a report must know.
    pub(crate) fn describe(&self) -> &'static str {
        match (self.engine, self.direct) {
            _ if self.kaio => "our page cache, native API, while a filter refuses io_uring",
            (Engine::Queue, _) => "our page cache through the native API",
            (Engine::Submission, _) => "our page cache one level below the native API",
            (Engine::Guard, _) => "our page cache without a copy: pages are lent",
            (Engine::Psync, _) => "pread and pwrite on the kernel's page cache",
            (Engine::PsyncAhead, _) => "pread, the kernel told of 2 MiB ahead, as far as we read",
            (Engine::Preadv2, _) => "preadv2 with RWF_NOWAIT on the kernel's page cache",
            (Engine::Uring, false) => "io_uring on the kernel's page cache",
            (Engine::Uring | Engine::UringDefer, true) => "io_uring with O_DIRECT",
            (Engine::UringDefer, false) => "io_uring with DEFER_TASKRUN and SINGLE_ISSUER",
            (Engine::Libaio, false) => "the kernel's native AIO on its page cache",
            (Engine::Libaio, true) => "the kernel's native AIO with O_DIRECT",
            (Engine::Mmap, _) => "a shared mapping, populated, and memcpy",
            (Engine::Memcpy, _) => "copies from private huge pages: the ceiling of any cache",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_about_subjects_of_its_case() {
        for case in &CASES {
            let has = |name| case.subjects.iter().any(|subject| subject.name == name);
            for target in case.targets {
                assert!(has(target.subject) && has(target.against), "{}", case.name);
                let good = target.metric.more_is_better();
                assert_eq!(good, target.comparison == AtLeast, "{}", case.name);
            }
        }
    }

    #[test]
    fn names_are_distinct_within_a_case() {
        for case in &CASES {
            let mut names: Vec<_> = case.subjects.iter().map(|subject| subject.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), case.subjects.len(), "{}", case.name);
        }
    }
}
