//! The cases: what the client does, the server, and the target.

use nowait_harness::case::{Against, Case, Comparison, Subject, Target};
use nowait_harness::metric::Metric::{
    self, BlocksLost, BytesPerS, BytesSentPerByte, CpuUsPerIo, GetsPerIo, Iops, LatencyUsP50,
    LatencyUsP99, PutsPerIo,
};

/// A server of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// `nowait serve` of an image on the store.
    Nowait(Before),
    /// `s3backer`, without a cache: each write waits for the store, as one that is durable has to.
    S3backer,
    /// The plugin of s3backer 2 in nbdkit, without a cache.
    S3backerNbd,
    /// ZeroFS, one of its devices by NBD.
    ZeroFs(Level0),
    /// `nowait serve` of a file of this machine: what a cache is held against.
    Local(Local),
    /// No server: another crate on the store, in the client's process.
    Crate(Crate),
}

/// Another crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crate {
    /// SlateDB, with a key for each block.
    SlateDb,
    /// `object_store`: what the store gives a plain client.
    Plain,
}

impl Crate {
    /// Returns what its program calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Crate::SlateDb => "slatedb",
            Crate::Plain => "plain",
        }
    }
}

/// How much ZeroFS flushes before it waits for a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level0 {
    /// `l0_max_ssts` as it is without a setting, 16. When there are so many, a flush of the SlateDB
    /// 0.9 in it ends well and has done nothing.
    Default,
    /// As much as there is: each flush is one.
    Unbounded,
}

/// What a file of this machine is read by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// `--cache user`, which has room for all.
    Memory,
    /// By direct I/O.
    Disk,
}

/// What stands before the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing.
    Nothing,
    /// `--cache user`, which has room for all.
    Memory,
    /// `--cache-dir`, by direct I/O.
    Folder,
}

/// What is done with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Blocks are written at random, with a flush after so many.
    Write {
        /// Writes for each flush.
        flush: u32,
        /// Clients at the same time, each of which waits for its flush.
        clients: u32,
    },
    /// Blocks are read at random; with a cache, each was read before.
    Read {
        /// Requests in flight.
        depth: u32,
    },
    /// All is read in order, 256 KiB a request.
    Sequential {
        /// Requests in flight.
        depth: u32,
    },
    /// Blocks are written, each with a flush after it; then the server is killed, and started anew.
    Killed,
    /// A snapshot of an image with content is made.
    Snapshot,
    /// A clone of a snapshot is made.
    Clone,
}

/// A job of a client, with one of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) server: Server,
    pub(crate) work: Work,
}

const NOWAIT: &str = "nowait";
const S3BACKER: &str = "s3backer";
const S3BACKER_NBD: &str = "s3backer-nbd";
const ZEROFS: &str = "zerofs";
const ZEROFS_L0: &str = "zerofs-l0";
const SLATEDB: &str = "slatedb";
const PLAIN: &str = "plain";
const MEMORY: &str = "nowait-memory";
const FOLDER: &str = "nowait-folder";
const LOCAL_MEMORY: &str = "local-memory";
const LOCAL_DISK: &str = "local-disk";

fn subject(name: &'static str, server: Server, work: Work) -> Subject<Job> {
    let about = match server {
        Server::Nowait(Before::Nothing) => "nowait serve, without a cache",
        Server::Nowait(Before::Memory) => "nowait serve --cache user",
        Server::Nowait(Before::Folder) => "nowait serve --cache-dir",
        Server::S3backer => "s3backer without a cache; its fsync does nothing, its writes wait",
        Server::S3backerNbd => "s3backer 2 as a plugin of nbdkit, without a cache; its writes wait",
        Server::ZeroFs(Level0::Default) => "zerofs run, a device by NBD",
        Server::ZeroFs(Level0::Unbounded) => "the same with l0_max_ssts = 1000000",
        Server::Local(Local::Memory) => "nowait serve --cache user of a file of this machine",
        Server::Local(Local::Disk) => "nowait serve of a file of this machine, by direct I/O",
        Server::Crate(Crate::SlateDb) => {
            "SlateDB 0.18 in the client, a key for each block; what was read is cached, none twice"
        }
        Server::Crate(Crate::Plain) => "a client of the crate object_store, ranges of one object",
    };
    Subject { name, engine: (name, about), job: Job { server, work } }
}

/// Of nothing but a count a share is the count itself.
const fn at_most(metric: Metric, count: f64) -> Target {
    let (comparison, against) = (Comparison::AtMost, Against::Count(1.0));
    Target { metric, subject: NOWAIT, comparison, ratio: count, against }
}

const WRITES: &[Metric] =
    &[Iops, LatencyUsP50, LatencyUsP99, PutsPerIo, BytesSentPerByte, CpuUsPerIo];
const READS: &[Metric] = &[Iops, LatencyUsP50, LatencyUsP99, GetsPerIo, CpuUsPerIo];
const IN_ORDER: &[Metric] = &[BytesPerS, LatencyUsP50, LatencyUsP99, GetsPerIo, CpuUsPerIo];
const TIMES: &[Metric] = &[LatencyUsP50];
const LOSSES: &[Metric] = &[BlocksLost];

fn own(work: Work) -> Vec<Subject<Job>> {
    vec![subject(NOWAIT, Server::Nowait(Before::Nothing), work)]
}

/// Ours, and others on the same store.
fn with(others: &[(&'static str, Server)], work: Work) -> Vec<Subject<Job>> {
    let others = others.iter().map(|&(name, server)| subject(name, server, work));
    own(work).into_iter().chain(others).collect()
}

const OF_SLATEDB: (&str, Server) = (SLATEDB, Server::Crate(Crate::SlateDb));
const OF_S3BACKER: (&str, Server) = (S3BACKER, Server::S3backer);
const OF_S3BACKER_NBD: (&str, Server) = (S3BACKER_NBD, Server::S3backerNbd);
const OF_ZEROFS: (&str, Server) = (ZEROFS, Server::ZeroFs(Level0::Default));
const OF_ZEROFS_L0: (&str, Server) = (ZEROFS_L0, Server::ZeroFs(Level0::Unbounded));
const OF_PLAIN: (&str, Server) = (PLAIN, Server::Crate(Crate::Plain));
const WRITERS: &[(&str, Server)] =
    &[OF_SLATEDB, OF_S3BACKER, OF_S3BACKER_NBD, OF_ZEROFS, OF_ZEROFS_L0];
const READERS: &[(&str, Server)] = &[OF_SLATEDB, OF_S3BACKER, OF_S3BACKER_NBD];

fn caches(work: Work) -> Vec<Subject<Job>> {
    vec![
        subject(MEMORY, Server::Nowait(Before::Memory), work),
        subject(FOLDER, Server::Nowait(Before::Folder), work),
        subject(LOCAL_MEMORY, Server::Local(Local::Memory), work),
        subject(LOCAL_DISK, Server::Local(Local::Disk), work),
    ]
}

/// Makes the cases.
pub(crate) fn cases() -> Vec<Case<Job>> {
    [writes(), reads(), losses(), edits()].concat()
}

fn case(
    (name, title): (&'static str, &str),
    about: &'static str,
    columns: &'static [Metric],
    subjects: Vec<Subject<Job>>,
    targets: Vec<Target>,
) -> Case<Job> {
    let (title, source) = (title.to_owned(), String::new());
    Case { name, title, about, source, columns, subjects, targets }
}

fn writes() -> Vec<Case<Job>> {
    let write = |name, title, about, subjects, targets| {
        case((name, title), about, WRITES, subjects, targets)
    };
    vec![
        write(
            "flush",
            "a random write of 4 KiB and a flush, one after another",
            "The times are those of the writes, of SlateDB with the flush; the rate has the \
             flushes in it. s3backer asks the store before each PUT (Expect: 100-continue): two \
             ways there and back. Of zerofs most flushes do nothing: PUTs, and the case killed.",
            with(WRITERS, Work::Write { flush: 1, clients: 1 }),
            vec![at_most(PutsPerIo, 1.05), Target::at_least(Iops, NOWAIT, 0.87, S3BACKER)],
        ),
        write(
            "flush-16",
            "the same by 16 clients at once",
            "",
            with(WRITERS, Work::Write { flush: 1, clients: 16 }),
            vec![Target::at_least(Iops, NOWAIT, 12.0, S3BACKER)],
        ),
        write(
            "flush-64",
            "random writes of 4 KiB, a flush after 64",
            "What the store got, headers of requests included.",
            with(
                &[OF_SLATEDB, OF_S3BACKER_NBD, OF_ZEROFS, OF_ZEROFS_L0],
                Work::Write { flush: 64, clients: 1 },
            ),
            vec![at_most(BytesSentPerByte, 1.15)],
        ),
    ]
}

fn reads() -> Vec<Case<Job>> {
    let read = |name, title, subjects, targets| case((name, title), "", READS, subjects, targets);
    vec![
        read(
            "read",
            "random reads of 4 KiB without a cache, one after another",
            with(READERS, Work::Read { depth: 1 }),
            vec![at_most(GetsPerIo, 1.05), Target::at_most(LatencyUsP50, NOWAIT, 1.08, S3BACKER)],
        ),
        read(
            "read-16",
            "the same, 16 in flight",
            with(READERS, Work::Read { depth: 16 }),
            vec![Target::at_least(Iops, NOWAIT, 1.0, S3BACKER)],
        ),
        case(
            ("sequential", "all in order without a cache, 256 KiB a request, 16 in flight"),
            "The plain client has no server between: ranges of one object, as many in flight.",
            IN_ORDER,
            with(&[OF_PLAIN, OF_S3BACKER_NBD], Work::Sequential { depth: 16 }),
            vec![Target::at_least(BytesPerS, NOWAIT, 0.9, PLAIN)],
        ),
        read(
            "cached",
            "random reads of 4 KiB of what a cache has, 32 in flight",
            caches(Work::Read { depth: 32 }),
            vec![
                Target::at_least(Iops, MEMORY, 0.95, LOCAL_MEMORY),
                Target::at_least(Iops, FOLDER, 0.7, LOCAL_DISK),
            ],
        ),
    ]
}

fn losses() -> Vec<Case<Job>> {
    vec![case(
        ("killed", "blocks lost of 500 flushed, when the server is killed"),
        "Each of 500 writes of 4 KiB is followed by a flush that is answered. Then the server gets \
         SIGKILL, while its client is still connected, and a new one begins on the same store with \
         an empty cache. SlateDB is killed with its client.",
        LOSSES,
        with(WRITERS, Work::Killed),
        vec![at_most(BlocksLost, 0.0)],
    )]
}

fn edits() -> Vec<Case<Job>> {
    let time =
        |name, title, about, subjects| case((name, title), about, TIMES, subjects, Vec::new());
    vec![
        time(
            "snapshot",
            "nowait image snapshot, the whole command",
            "The image is as it was filled: the last PUTs of that follow its checkpoint.",
            own(Work::Snapshot),
        ),
        time("clone", "nowait image clone, the whole command", "", own(Work::Clone)),
    ]
}
