//! The jobs of fio, and the ways to launch it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nowait_harness::case::{Case, Subject, name};
use nowait_harness::cases::{self, Job};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Way {
    /// The name of the engine in fio's option `ioengine`.
    pub(crate) engine: String,
    /// Environment variables of nowait's library; empty if fio runs without the library.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
    /// A seccomp filter refuses `io_uring` with EPERM.
    #[serde(default)]
    pub(crate) forbids_uring: bool,
}

impl Way {
    pub(crate) fn preloads(&self) -> bool {
        !self.settings.is_empty()
    }
}

pub(crate) type FioJob = Job<Way, Work>;
pub(crate) type FioCase = Case<FioJob>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    Disk,
    Tmpfs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Start {
    /// The test file, not cached: the suite drops its pages, or all caches.
    Cold,
    /// The test file, read into the page cache.
    Cached,
    /// No file: fio makes the file, and each write extends it.
    Absent,
    /// A new file that is one hole: each write fills a part of it.
    Holes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rw {
    Read,
    Write,
    RandRead,
    RandWrite,
    #[serde(rename = "randrw")]
    RandMixed,
}

impl Rw {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::RandMixed => "randrw",
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Work {
    pub(crate) place: Place,
    pub(crate) start: Start,
    pub(crate) rw: Rw,
    pub(crate) block_bytes: u64,
    pub(crate) depth: u32,
    pub(crate) direct: bool,
    pub(crate) sync: bool,
    /// fio visits each block once before any block again, so that an uncached read stays uncached.
    pub(crate) random_map: bool,
    /// Threads of fio, each with its own part of the file and its own context.
    pub(crate) jobs: u32,
    /// The number of files of each context. The size of the work is the sum of their sizes.
    pub(crate) files: u32,
    pub(crate) more: Vec<String>,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            place: Place::Disk,
            start: Start::Cold,
            rw: Rw::RandRead,
            block_bytes: 4 << 10,
            depth: 32,
            direct: false,
            sync: false,
            random_map: true,
            jobs: 1,
            files: 1,
            more: Vec::new(),
        }
    }
}

const SUBMIT: &str = concat!(include_str!("ways.toml"), include_str!("submit.toml"));
const POSIX: &str = concat!(include_str!("ways.toml"), include_str!("posix.toml"));
const PARITY: &str = concat!(include_str!("ways.toml"), include_str!("parity.toml"));

pub(crate) fn cases(workload: &str) -> Vec<FioCase> {
    cases::table(match workload {
        "posix" => POSIX,
        "parity" => PARITY,
        _ => SUBMIT,
    })
}

/// Returns each cell once for each number of threads in `counts`, or once if `counts` is empty.
pub(crate) fn with_threads(cells: Vec<FioCase>, counts: &[u32]) -> Vec<FioCase> {
    let with = |cell: &FioCase, jobs: u32| {
        let name = name(format!("{}-threads-{jobs}", cell.name));
        let mut case = Case { name, ..cell.clone() };
        case.subjects.iter_mut().for_each(|subject| subject.job.work.jobs = jobs);
        case
    };
    let mut cells = match counts {
        [] => cells,
        _ => cells.iter().flat_map(|cell| counts.iter().map(|jobs| with(cell, *jobs))).collect(),
    };
    for cell in cells.iter_mut().filter(|cell| work(cell).jobs > 1) {
        cell.title = format!("{}, {} threads", cell.title, work(cell).jobs);
    }
    cells
}

pub(crate) fn ways() -> Vec<Subject<Way>> {
    cases::engines(SUBMIT)
}

/// All subjects of a case do the work of its first subject.
pub(crate) fn work(case: &FioCase) -> &Work {
    &case.subjects[0].job.work
}

impl Work {
    /// Returns `path` itself for one file; several files have numbers as the extension of `path`.
    pub(crate) fn paths(&self, path: &Path) -> Vec<PathBuf> {
        match self.files {
            1 => vec![path.to_owned()],
            files => (0..files).map(|index| path.with_extension(index.to_string())).collect(),
        }
    }

    pub(crate) fn reads_only(&self) -> bool {
        matches!(self.rw, Rw::Read | Rw::RandRead)
    }

    pub(crate) fn is_on_shared_file(&self) -> bool {
        self.start == Start::Cold && self.files == 1
    }

    /// fio reads again the bytes that it wrote.
    pub(crate) fn verified_bytes(&self, size_bytes: u64) -> u64 {
        match self.rw {
            Rw::Read | Rw::RandRead => size_bytes,
            // fio writes about half of the bytes; a quarter leaves room for chance.
            Rw::RandMixed => size_bytes + size_bytes / 4,
            Rw::Write | Rw::RandWrite => size_bytes * 2,
        }
    }

    /// Returns the least and the most bytes read from the disk for each byte that a run moves.
    pub(crate) fn disk_reads(&self) -> Option<(f64, f64)> {
        match self.start {
            Start::Cached => Some((0.0, 0.02)),
            Start::Cold if self.direct => None,
            Start::Cold if self.reads_only() => Some((0.95, f64::INFINITY)),
            Start::Cold if self.rw == Rw::RandMixed => Some((0.45, f64::INFINITY)),
            Start::Cold | Start::Absent | Start::Holes => None,
        }
    }

    /// A second lap would find uncached pages cached, and would overwrite blocks instead of
    /// extending the file or filling holes.
    pub(crate) fn ends_after_one_lap(&self) -> bool {
        match self.start {
            Start::Cold => !self.direct,
            Start::Cached => false,
            Start::Absent | Start::Holes => true,
        }
    }

    pub(crate) fn makes_fresh_file(&self) -> bool {
        matches!(self.start, Start::Absent | Start::Holes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_well_formed() {
        for workload in ["submit", "posix", "parity"] {
            let cases = cases(workload);
            nowait_harness::testing::check(&cases);
            let reference = |case: &FioCase| case.has("system") || case.has("posixaio");
            assert!(cases.iter().all(reference), "{workload}");
        }
    }

    #[test]
    fn the_cells_have_distinct_names_and_titles() {
        let cells = with_threads(cases("parity"), &[]);
        let distinct = |text: fn(&FioCase) -> &str| {
            cells.iter().map(text).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(distinct(|cell| cell.name), cells.len());
        assert_eq!(distinct(|cell| &cell.title), cells.len());
        let cell = cells.iter().find(|cell| cell.name == "direct-mix-4k-8jobs").expect("a cell");
        let title = "4 KiB random reads and writes, O_DIRECT, 4 in flight, 8 threads";
        assert_eq!(cell.title, title);
    }

    #[test]
    fn a_cell_with_numbers_of_threads_is_a_case_for_each() {
        let mut cells = cases("parity");
        cells.retain(|cell| cell.name == "direct-read-batch-d32");
        let many = with_threads(cells.clone(), &[1, 16]);
        let names: Vec<&str> = many.iter().map(|case| case.name).collect();
        assert_eq!(names, ["direct-read-batch-d32-threads-1", "direct-read-batch-d32-threads-16"]);
        let title = "4 KiB random reads, O_DIRECT, 32 in flight, in batches of 8";
        assert_eq!((&*many[0].title, &*many[1].title), (title, &*format!("{title}, 16 threads")));
        assert!(many[1].subjects.iter().all(|subject| subject.job.work.jobs == 16));
        assert_eq!(with_threads(cells, &[]).len(), 1, "its own number");
    }

    #[test]
    fn a_letter_selects_all_of_its_cases() {
        let named = |name| cases("submit").iter().filter(|case| case.answers_to(name)).count();
        assert_eq!((named("a"), named("b"), named("c"), named("e")), (1, 2, 2, 2));
        assert_eq!((named("c-random"), named("b-tmpfs"), named("z"), named("")), (1, 1, 0, 0));
    }
}
