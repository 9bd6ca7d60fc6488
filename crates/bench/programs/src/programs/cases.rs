//! The cases: a program, what it does, and the ways to run it.

use nowait_harness::case::{self, ITSELF, ITSELF_POSIX, Subject, Target};
use nowait_harness::metric::Metric::{
    self, BytesPerS, CpuUsPerOperation, HeldUpUsMax, HeldUpUsP99, HeldUpUsP999, HeldUpUsP9999,
    Iops, LatencyUsP50, LatencyUsP99, TransactionsPerS,
};

/// What a program is asked to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Load {
    /// QEMU's block layer writes to a sparse raw image: fio's `--rw` and `--bs`.
    Qemu { rw: &'static str, block_bytes: u64 },
    /// Python's caio reads an uncached file, below an event loop.
    Caio { block_bytes: u64 },
    /// NIXL moves so many blocks a transfer: `READ` or `WRITE`.
    Nixl { direction: &'static str, block_bytes: u64, count: u64 },
    /// MariaDB serves transactions: its `innodb_flush_method`, and how many clients there are.
    Mariadb { flush: &'static str, threads: u32 },
    /// sysbench's own file test reads at random.
    SysbenchFiles { direct: bool },
    /// nginx sends parts of a file that it reads past the page cache.
    Nginx,
    /// thin_check reads the metadata of a pool.
    Thin,
}

/// By which interface a program does its I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `io_submit`.
    Aio,
    /// `aio_read` and its like.
    PosixAio,
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

/// The subjects that others are compared with.
pub(crate) const URING: &str = "io_uring";
const NOWAIT: &str = "nowait";
const NOWAIT_POSIX: &str = "nowait-posixaio";
const NO_URING: &str = "nowait-no-uring";
const THREADS: &str = "threads";

/// A way: its name, what the reader of a report must know, the interface, whether the library is
/// preloaded and whether a filter refuses `io_uring`.
type WayRow = (&'static str, &'static str, Mode, bool, bool);

const WAYS: [WayRow; 7] = [
    (ITSELF, "the program by itself, with native AIO", Mode::Aio, false, false),
    (NOWAIT, "the same with libnowait_preload.so", Mode::Aio, true, false),
    (
        NO_URING,
        "nowait while a seccomp filter refuses io_uring (EPERM), as containers do",
        Mode::Aio,
        true,
        true,
    ),
    (URING, "the program's own io_uring mode", Mode::Uring, false, false),
    (THREADS, "the program's own threads", Mode::Threads, false, false),
    (ITSELF_POSIX, "the program by itself, with POSIX AIO", Mode::PosixAio, false, false),
    (NOWAIT_POSIX, "the same with libnowait_preload.so", Mode::PosixAio, true, false),
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
    /// All of them under the filter.
    in_container: bool,
    targets: Vec<Target>,
}

const QEMU_WAYS: &[&str] = &[ITSELF, NOWAIT, NO_URING, URING, THREADS];
const QEMU: &str = "qemu-storage-daemon has a sparse raw image (cache.direct=on, aio=native) and \
                    another disk that needs no I/O; its main loop serves both, as that of a \
                    virtual machine does. Held up is the other disk's request: what a guest sees \
                    of the time inside io_submit.";

fn qemu(name: &'static str, title: &'static str, load: Load, columns: &'static [Metric]) -> Row {
    let stalls = |name| Target::at_most(HeldUpUsP99, name, 0.5, ITSELF);
    let targets =
        vec![stalls(NOWAIT), stalls(NO_URING), Target::at_least(columns[0], NOWAIT, 1.0, ITSELF)];
    let (about, ways, in_container) = (QEMU, QEMU_WAYS, false);
    Row { name, title, about, load, columns, ways, in_container, targets }
}

const NIXL_WAYS: &[&str] = &[ITSELF, NOWAIT, URING, ITSELF_POSIX, NOWAIT_POSIX];
const NIXL: &str = "NIXL moves caches of language models between memory and storage. Its POSIX \
                    plugin has a buffered file; a transfer is of many blocks at random places, \
                    which were not read before. Held up is the call that begins a transfer.";
const NIXL_COLUMNS: &[Metric] =
    &[BytesPerS, LatencyUsP99, HeldUpUsMax, CpuUsPerOperation, LatencyUsP50];

/// How a title begins where `io_uring` is refused.
const CONTAINER: &str = "NIXL in a container";

fn nixl(name: &'static str, title: &'static str, load: Load) -> Row {
    let in_container = title.starts_with(CONTAINER);
    let reads = matches!(load, Load::Nixl { direction: "READ", .. });
    let least = match (reads, in_container) {
        (true, false) => 2.0,
        (true, true) => 1.8,
        (false, _) => 1.0,
    };
    let mut targets = vec![
        Target::at_least(BytesPerS, NOWAIT, least, ITSELF),
        Target::at_least(BytesPerS, NOWAIT_POSIX, least, ITSELF_POSIX),
    ];
    if !in_container {
        targets.push(Target::at_least(BytesPerS, NOWAIT, 1.0, URING));
    }
    let (about, columns, ways) = (NIXL, NIXL_COLUMNS, NIXL_WAYS);
    Row { name, title, about, load, columns, ways, in_container, targets }
}

fn nixl_rows() -> Vec<Row> {
    let large = |direction| Load::Nixl { direction, block_bytes: 64 << 10, count: 512 };
    let small = |direction| Load::Nixl { direction, block_bytes: 4 << 10, count: 2048 };
    let (read, write) = ("READ", "WRITE");
    vec![
        nixl(
            "container-nixl-read-64k",
            "NIXL in a container reads 512 × 64 KiB a transfer",
            large(read),
        ),
        nixl(
            "container-nixl-read-4k",
            "NIXL in a container reads 2,048 × 4 KiB a transfer",
            small(read),
        ),
        nixl(
            "container-nixl-write-64k",
            "NIXL in a container writes 512 × 64 KiB a transfer",
            large(write),
        ),
        nixl(
            "container-nixl-write-4k",
            "NIXL in a container writes 2,048 × 4 KiB a transfer",
            small(write),
        ),
        nixl("nixl-read-64k", "NIXL reads 512 × 64 KiB a transfer", large(read)),
        nixl("nixl-read-4k", "NIXL reads 2,048 × 4 KiB a transfer", small(read)),
        nixl("nixl-write-64k", "NIXL writes 512 × 64 KiB a transfer", large(write)),
        nixl("nixl-write-4k", "NIXL writes 2,048 × 4 KiB a transfer", small(write)),
    ]
}

const CAIO_WAYS: &[&str] = &[ITSELF, NOWAIT, NO_URING, URING, THREADS];
const CAIO: &str = "An asyncio program awaits 64 reads at a time through caio, which aiofile uses \
                    too; no block of the buffered file was read before. Held up is the event \
                    loop: by how much later it comes back than it was asked to.";

fn caio(name: &'static str, title: &'static str, block_bytes: u64) -> Row {
    let load = Load::Caio { block_bytes };
    let columns = &[Iops, LatencyUsP99, HeldUpUsMax, CpuUsPerOperation, HeldUpUsP99];
    let targets = vec![
        Target::at_least(Iops, NOWAIT, 4.0, ITSELF),
        Target::at_most_us(HeldUpUsMax, NOWAIT, 2000.0),
    ];
    let (about, ways, in_container) = (CAIO, CAIO_WAYS, false);
    Row { name, title, about, load, columns, ways, in_container, targets }
}

const MARIADB_WAYS: &[&str] = &[ITSELF, NOWAIT, NO_URING, URING];
const MARIADB: &str = "sysbench's oltp_read_write, rows drawn evenly, tables of 16 times the \
                       buffer pool. Held up is a thread of the server inside io_submit.";

fn mariadb(name: &'static str, title: &'static str, flush: &'static str, threads: u32) -> Row {
    let load = Load::Mariadb { flush, threads };
    let columns = &[
        TransactionsPerS,
        LatencyUsP99,
        HeldUpUsMax,
        CpuUsPerOperation,
        HeldUpUsP999,
        HeldUpUsP9999,
    ];
    let targets = vec![
        Target::at_least(TransactionsPerS, NOWAIT, 0.98, ITSELF),
        Target::at_least(TransactionsPerS, NO_URING, 0.98, ITSELF),
        Target::at_most(HeldUpUsP999, NOWAIT, 0.2, ITSELF),
    ];
    let (about, ways, in_container) = (MARIADB, MARIADB_WAYS, false);
    Row { name, title, about, load, columns, ways, in_container, targets }
}

fn mariadb_rows() -> Vec<Row> {
    vec![
        mariadb("mariadb-buffered", "MariaDB, innodb_flush_method=fsync, 16 clients", "fsync", 16),
        mariadb(
            "mariadb-direct",
            "MariaDB, innodb_flush_method=O_DIRECT, 16 clients",
            "O_DIRECT",
            16,
        ),
        mariadb(
            "mariadb-buffered-64",
            "MariaDB, innodb_flush_method=fsync, 64 clients",
            "fsync",
            64,
        ),
        mariadb(
            "mariadb-direct-64",
            "MariaDB, innodb_flush_method=O_DIRECT, 64 clients",
            "O_DIRECT",
            64,
        ),
    ]
}

const THREE_WAYS: &[&str] = &[ITSELF, NOWAIT, NO_URING];
const SYSBENCH: &str = "sysbench fileio --file-io-mode=async: one thread keeps 64 reads of 16 KiB \
                        in flight on 4 files. Nothing of them is cached at first; blocks are \
                        drawn evenly, so some are read again. Its own latency is that of a call. \
                        Held up is its thread inside io_submit.";

fn sysbench(name: &'static str, title: &'static str, direct: bool) -> Row {
    let load = Load::SysbenchFiles { direct };
    let columns = &[Iops, LatencyUsP99, HeldUpUsMax, CpuUsPerOperation, HeldUpUsP99];
    let targets = vec![Target::at_least(Iops, NOWAIT, 0.98, ITSELF)];
    let (about, ways, in_container) = (SYSBENCH, THREE_WAYS, false);
    Row { name, title, about, load, columns, ways, in_container, targets }
}

const NGINX: &str = "One worker of nginx (aio on, directio 512) sends parts of 256 KiB of a file \
                     to 16 clients. Held up is another client's answer that needs no file: what \
                     it sees of the worker's other work.";

fn nginx() -> Row {
    Row {
        name: "nginx",
        title: "nginx with aio on sends parts of a large file",
        about: NGINX,
        load: Load::Nginx,
        columns: &[BytesPerS, LatencyUsP99, HeldUpUsMax, CpuUsPerOperation, HeldUpUsP99],
        ways: &[ITSELF, NOWAIT, NO_URING, THREADS],
        in_container: false,
        targets: vec![Target::at_least(BytesPerS, NOWAIT, 0.98, ITSELF)],
    }
}

const THIN: &str = "thin_check reads the metadata of a thin pool past the page cache, one block in \
                    each io_submit. An operation is a check, and p99 is its time. Held up is its \
                    thread inside io_submit.";

fn thin() -> Row {
    Row {
        name: "thin-check",
        title: "thin_check of the thin-provisioning tools",
        about: THIN,
        load: Load::Thin,
        columns: &[BytesPerS, LatencyUsP99, HeldUpUsMax, CpuUsPerOperation, HeldUpUsP99],
        ways: THREE_WAYS,
        in_container: false,
        targets: vec![Target::at_least(BytesPerS, NOWAIT, 0.98, ITSELF)],
    }
}

fn qemu_rows() -> Vec<Row> {
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

/// Makes all cases: first those of a container, where a program cannot help itself.
pub(crate) fn cases() -> Vec<case::Case<Job>> {
    let caio = vec![
        caio("caio-64k", "Python's caio reads 64 KiB, 64 at a time", 64 << 10),
        caio("caio-4k", "Python's caio reads 4 KiB, 64 at a time", 4 << 10),
    ];
    let sysbench = vec![
        sysbench("sysbench-buffered", "sysbench fileio reads buffered files", false),
        sysbench("sysbench-direct", "sysbench fileio reads with O_DIRECT", true),
    ];
    let rows = [nixl_rows(), caio, qemu_rows(), mariadb_rows(), sysbench, vec![nginx(), thin()]];
    rows.into_iter().flatten().map(Row::into_case).collect()
}

impl Row {
    fn into_case(self) -> case::Case<Job> {
        let Self { name, title, about, load, columns, ways, in_container, targets } = self;
        let wanted = WAYS.into_iter().filter(|(way, ..)| ways.contains(way));
        let subject = |(name, about, mode, preloads, forbids): WayRow| Subject {
            name,
            engine: (name, about),
            job: Job { load, way: Way { mode, preloads, forbids_uring: forbids || in_container } },
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

    #[test]
    fn everything_in_a_container_is_under_the_filter() {
        let cases = cases();
        assert_eq!(cases[0].name, "container-nixl-read-64k", "the case to show first");
        let ways = |case: &case::Case<Job>| -> Vec<bool> {
            case.subjects.iter().map(|subject| subject.job.way.forbids_uring).collect()
        };
        for case in &cases {
            let is_container = case.name.starts_with("container-");
            assert_eq!(ways(case).iter().all(|forbids| *forbids), is_container, "{}", case.name);
        }
    }
}
