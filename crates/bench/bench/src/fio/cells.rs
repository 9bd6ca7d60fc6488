//! The cells: every kind of work that a libaio program may do, as fio jobs.

use nowait_harness::case::{Case, Target, name};
use nowait_harness::metric::Metric::{CpuUsPerIo, Iops};
use nowait_harness::units;

use super::job::{BUFFERED, FioCase, Rw, Start, Work, cases, ways, work};
use super::verdict::Limits;

/// Random reads of 4 KiB, one in flight, buffered and uncached.
const READ: Work = BUFFERED.depth(1);
const CACHED: Work = Work { start: Start::Cached, random_map: false, ..READ };
const WRITE: Work = CACHED.rw(Rw::RandWrite);
const SYNC: Work = Work { sync: true, ..READ.rw(Rw::RandWrite) };
const DIRECT: Work = Work { direct: true, random_map: false, ..READ };
const DIRECT_WRITE: Work = DIRECT.rw(Rw::RandWrite);
const EXTEND: Work = Work { start: Start::Absent, ..DIRECT.rw(Rw::Write).depth(32) };
const HOLES: Work =
    Work { start: Start::Holes, random_map: true, ..DIRECT.rw(Rw::RandWrite).depth(32) };
const UNWRITTEN: Work = Work { start: Start::Absent, ..HOLES.more(&["--fallocate=posix"]) };
const APPEND: Work = Work { start: Start::Absent, ..WRITE.rw(Rw::Write).depth(8) };

/// fio reads the completion ring itself and calls `io_getevents` only if the ring is empty.
const REAP: &[&str] = &["--userspace_reap"];
/// Eight requests in a submit; waits for eight completions.
const BATCH: &[&str] = &["--iodepth_batch_submit=8", "--iodepth_batch_complete_min=8"];
/// Submits many, and takes completions one by one.
const REAP_ONE: &[&str] = &["--iodepth_batch_submit=16", "--iodepth_batch_complete_max=1"];
/// Polls: `io_getevents` with a minimum of 0.
const POLL: &[&str] = &["--iodepth_batch_complete_min=0"];
const RATE: &[&str] = &["--rate_iops=1000"];
const DSYNC: &[&str] = &["--sync=dsync"];
const FSYNC: &[&str] = &["--fsync=32"];
const FDATASYNC: &[&str] = &["--fdatasync=1"];

/// Every cell: its name, the addition to its title, and the work.
const CELLS: &[(&str, &str, Work)] = &[
    ("read-uncached-4k-d1", "", READ),
    ("read-uncached-4k-d4", "", READ.depth(4)),
    ("read-uncached-4k-d32", "", READ.depth(32)),
    ("read-uncached-4k-d32-batch", "in batches of 8", READ.depth(32).more(BATCH)),
    ("read-uncached-64k-d1", "", READ.kib(64)),
    ("read-uncached-64k-d32", "", READ.kib(64).depth(32)),
    ("read-uncached-8files-d32", "", READ.depth(32).files(8)),
    ("read-uncached-order-128k-d8", "", READ.rw(Rw::Read).kib(128).depth(8)),
    ("read-uncached-rate-d4", "1000 a second", READ.depth(4).more(RATE)),
    ("read-cached-4k-d1", "", CACHED),
    ("read-cached-4k-d32", "", CACHED.depth(32)),
    ("read-cached-4k-4jobs", "", CACHED.depth(16).jobs(4)),
    ("read-cached-64k-d16", "", CACHED.kib(64).depth(16)),
    ("read-cached-8files-d32", "", CACHED.depth(32).files(8)),
    ("read-cached-reap-d32", "completions read from the ring", CACHED.depth(32).more(REAP)),
    ("write-cached-4k-d1", "", WRITE),
    ("write-cached-4k-d32", "", WRITE.depth(32)),
    ("write-cached-4k-4jobs", "", WRITE.depth(8).jobs(4)),
    ("write-cached-64k-d16", "", WRITE.kib(64).depth(16)),
    ("write-cached-order-128k-d8", "", WRITE.rw(Rw::Write).kib(128).depth(8)),
    ("write-append-4k-d8", "", APPEND),
    ("write-append-128k-d8", "", APPEND.kib(128)),
    ("write-uncached-1k-d8", "parts of pages", READ.rw(Rw::RandWrite).kib(1).depth(8)),
    ("write-fsync-4k-d16", "fsync after 32", WRITE.depth(16).more(FSYNC)),
    ("write-fdatasync-4k-d1", "fdatasync after each", WRITE.rw(Rw::Write).more(FDATASYNC)),
    ("mix-uncached-4k-d32", "", READ.rw(Rw::RandMixed).depth(32)),
    ("mix-cached-4k-d32", "", CACHED.rw(Rw::RandMixed).depth(32)),
    ("sync-4k-d1", "", SYNC),
    ("sync-4k-d16", "", SYNC.depth(16)),
    ("sync-64k-d16", "", SYNC.kib(64).depth(16)),
    ("dsync-order-4k-d1", "O_DSYNC", READ.rw(Rw::Write).more(DSYNC)),
    ("direct-read-4k-d1", "", DIRECT),
    ("direct-read-4k-d4", "", DIRECT.depth(4)),
    ("direct-read-4k-d16", "", DIRECT.depth(16)),
    ("direct-read-4k-d64", "", DIRECT.depth(64)),
    ("direct-read-4k-4jobs", "", DIRECT.depth(16).jobs(4)),
    ("direct-read-8files-d32", "", DIRECT.depth(32).files(8)),
    ("direct-read-batch-d32", "in batches of 8", DIRECT.depth(32).more(BATCH)),
    ("direct-read-reap-one-d32", "completions one by one", DIRECT.depth(32).more(REAP_ONE)),
    ("direct-read-poll-d32", "io_getevents polled", DIRECT.depth(32).more(POLL)),
    ("direct-read-reap-d32", "completions read from the ring", DIRECT.depth(32).more(REAP)),
    ("direct-read-rate-d4", "1000 a second", DIRECT.depth(4).more(RATE)),
    ("direct-read-order-128k-d8", "", DIRECT.rw(Rw::Read).kib(128).depth(8)),
    ("direct-read-order-1m-d4", "", DIRECT.rw(Rw::Read).kib(1024).depth(4)),
    ("direct-write-4k-d1", "", DIRECT_WRITE),
    ("direct-write-4k-d16", "", DIRECT_WRITE.depth(16)),
    ("direct-write-order-128k-d8", "", DIRECT.rw(Rw::Write).kib(128).depth(8)),
    ("direct-write-order-1m-d4", "", DIRECT.rw(Rw::Write).kib(1024).depth(4)),
    ("direct-write-dsync-4k-d4", "O_DSYNC", DIRECT_WRITE.depth(4).more(DSYNC)),
    ("direct-write-fsync-4k-d16", "fsync after 32", DIRECT_WRITE.depth(16).more(FSYNC)),
    ("direct-mix-4k-8jobs", "", DIRECT.rw(Rw::RandMixed).depth(4).jobs(8)),
    ("direct-extend-4k-d32", "", EXTEND),
    ("direct-extend-64k-d32", "", EXTEND.kib(64)),
    ("direct-holes-4k-d32", "", HOLES),
    ("direct-holes-64k-d32", "", HOLES.kib(64)),
    ("direct-unwritten-4k-d32", "preallocated", UNWRITTEN),
];

/// Jobs that differ from another one in a word.
impl Work {
    const fn rw(self, rw: Rw) -> Self {
        Self { rw, ..self }
    }

    const fn kib(self, kib: u64) -> Self {
        Self { block_bytes: kib << 10, ..self }
    }

    const fn depth(self, depth: u32) -> Self {
        Self { depth, ..self }
    }

    const fn jobs(self, jobs: u32) -> Self {
        Self { jobs, ..self }
    }

    const fn files(self, files: u32) -> Self {
        Self { files, ..self }
    }

    const fn more(self, more: &'static [&'static str]) -> Self {
        Self { more, ..self }
    }
}

/// Makes the cells. Cells of uncached reads also have fio's `io_uring` engine.
pub(crate) fn cells() -> Vec<FioCase> {
    let (ways, columns) = (ways(), cases("submit")[0].columns);
    let cell = |(name, word, work): &(&'static str, &str, Work)| {
        let with_uring = work.start == Start::Cold && work.reads_only() && !work.direct;
        let names = ["system", "nowait", "nowait-no-uring", "io_uring"];
        let names = &names[..if with_uring { 4 } else { 3 }];
        let of = |name: &&str| ways.iter().find(|way| way.name == *name).cloned();
        Case {
            name,
            title: title(word, work),
            about: "",
            source: String::new(),
            columns,
            subjects: names.iter().filter_map(of).map(|way| way.doing(*work)).collect(),
            targets: Vec::new(),
        }
    };
    CELLS.iter().map(cell).collect()
}

/// Returns each cell once for each number of threads, instead of its own number.
pub(crate) fn with_threads(cells: Vec<FioCase>, counts: &[u32]) -> Vec<FioCase> {
    if counts.is_empty() {
        return cells;
    }
    let with = |cell: &FioCase, jobs: u32| {
        let work = Work { jobs, ..*work(cell) };
        let word = CELLS.iter().find(|(name, ..)| *name == cell.name).map_or("", |it| it.1);
        let mut case = cell.clone();
        (case.name, case.title) =
            (name(format!("{}-threads-{jobs}", cell.name)), title(word, &work));
        case.subjects.iter_mut().for_each(|subject| subject.job.work = work);
        case
    };
    cells.iter().flat_map(|cell| counts.iter().map(move |jobs| with(cell, *jobs))).collect()
}

/// Returns the targets of a case by the limits.
pub(crate) fn targets(case: &FioCase, limits: Limits) -> Vec<Target> {
    let ours = case.subjects.iter().filter(|subject| subject.job.engine.preloads());
    let of = |name| {
        let iops = Target::at_least(Iops, name, limits.iops_min, "system");
        let cpu = limits.cpu_max.map(|max| Target::at_most(CpuUsPerIo, name, max, "system"));
        [Some(iops), cpu].into_iter().flatten()
    };
    ours.flat_map(|subject| of(subject.name)).collect()
}

/// Returns the title of a job, such as `4 KiB random reads, buffered, uncached, 1 in flight`.
fn title(word: &str, work: &Work) -> String {
    let what = match work.rw {
        Rw::Read => "reads in order",
        Rw::Write => "writes in order",
        Rw::RandRead => "random reads",
        Rw::RandWrite => "random writes",
        Rw::RandMixed => "random reads and writes",
    };
    let state = match work.start {
        Start::Cold if work.direct => "",
        Start::Cold => "uncached",
        Start::Cached => "cached",
        Start::Absent => "of a new file",
        Start::Holes => "into holes",
    };
    let many = |count: u32, what: &str| match count {
        1 => String::new(),
        _ => format!("{count} {what}"),
    };
    let parts = [
        format!("{} {what}", units::bytes(work.block_bytes as f64)),
        if work.direct { "O_DIRECT" } else { "buffered" }.to_owned(),
        if work.sync { "O_SYNC" } else { "" }.to_owned(),
        state.to_owned(),
        format!("{} in flight", work.depth),
        many(work.jobs, "threads"),
        many(work.files, "files"),
        word.to_owned(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_are_well_formed() {
        let mut cells = cells();
        for cell in &mut cells {
            cell.targets = targets(cell, Limits::beside(0));
        }
        nowait_harness::testing::check(&cells);
        let mut names: Vec<_> = cells.iter().map(|cell| cell.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CELLS.len(), "names are distinct");
        let mut titles: Vec<_> = cells.iter().map(|cell| cell.title.as_str()).collect();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), CELLS.len(), "titles are distinct");
    }

    #[test]
    fn a_cell_with_numbers_of_threads_is_a_case_for_each() {
        let mut cells = cells();
        cells.retain(|cell| cell.name == "direct-read-batch-d32");
        let many = with_threads(cells.clone(), &[1, 16]);
        let names: Vec<&str> = many.iter().map(|case| case.name).collect();
        assert_eq!(names, ["direct-read-batch-d32-threads-1", "direct-read-batch-d32-threads-16"]);
        let title = "4 KiB random reads, O_DIRECT, 32 in flight, 16 threads, in batches of 8";
        assert_eq!(many[1].title, title);
        assert!(many[1].subjects.iter().all(|subject| subject.job.work.jobs == 16));
        assert_eq!(with_threads(cells, &[]).len(), 1, "its own number");
    }

    #[test]
    fn a_title_says_what_the_job_does() {
        let title =
            |name: &str| cells().into_iter().find(|cell| cell.name == name).map(|it| it.title);
        let direct = "4 KiB random reads and writes, O_DIRECT, 4 in flight, 8 threads";
        assert_eq!(title("direct-mix-4k-8jobs").as_deref(), Some(direct));
    }
}
