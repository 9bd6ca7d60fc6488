//! The registry of engines: the name of each, and how it is opened.

use nowait::{CacheMode, SubmitMode};
use nowait_sys::uring::Issuer;

use crate::aio::AioPeer;
use crate::copies::Memory;
use crate::guard::Guard;
use crate::job::Job;
use crate::native::Native;
use crate::null::Null;
use crate::pool::PoolPeer;
use crate::psync::psync;
use crate::ring::{Style, UringPeer};
use crate::{Engine, OnFiles};
use nowait_harness::error::{Failure, Result};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Native(CacheMode, SubmitMode),
    /// nowait's Rust API, with lent pages in place of copies.
    Guard,
    Aio,
    Uring(Style),
    Pool,
    /// `true` if the peer first tries without waiting; and the number of bytes that the kernel is
    /// to read ahead.
    Psync(bool, u64),
    /// `true` if the kernel reads the whole file when the engine maps it.
    Mmap(bool),
    Memcpy,
    Null,
}

/// An engine that can be named on the command line.
#[derive(Debug, PartialEq)]
pub struct EngineDef {
    /// The name on the command line.
    pub name: &'static str,
    /// A description of a few words.
    pub about: &'static str,
    kind: Kind,
    /// The engine opens the file with `O_DIRECT`.
    pub direct: bool,
}

const fn def(name: &'static str, kind: Kind, direct: bool, about: &'static str) -> EngineDef {
    EngineDef { name, about, kind, direct }
}

const fn host(submit: SubmitMode) -> Kind {
    Kind::Native(CacheMode::Host, submit)
}

const URING: Kind = Kind::Uring(Style::eager(false));
const URING_WAIT: Kind = Kind::Uring(Style::lazy(Issuer::Any));
const PSYNC: Kind = Kind::Psync(false, 0);
/// The longest readahead window of nowait's page cache.
const AHEAD_BYTES: u64 = 2 << 20;
const AUTO: SubmitMode = SubmitMode::Auto;

/// All engines.
pub const ENGINES: &[EngineDef] = &[
    def("nowait-user", Kind::Native(CacheMode::User, AUTO), false, "nowait, its own page cache"),
    def("nowait-host", host(AUTO), false, "nowait, the kernel's page cache"),
    def("nowait-offload", host(SubmitMode::Offload), false, "the same, nothing done in submit"),
    def("nowait-direct", Kind::Native(CacheMode::Direct, AUTO), true, "nowait, O_DIRECT"),
    def("libaio", Kind::Aio, false, "the kernel's native AIO by its system calls"),
    def("libaio-direct", Kind::Aio, true, "the same, O_DIRECT"),
    def("io_uring", URING, false, "io_uring, one system call a submit"),
    def("io_uring-direct", URING, true, "the same, O_DIRECT"),
    def(
        "io_uring-registered",
        Kind::Uring(Style::eager(true)),
        true,
        "the same, O_DIRECT, file and buffers registered, not interrupted by what ends",
    ),
    def("threads", Kind::Pool, false, "a pool of up to 32 threads, pread and pwrite"),
    def("threads-direct", Kind::Pool, true, "the same, O_DIRECT"),
    def("psync", PSYNC, false, "pread and pwrite"),
    def("psync-direct", PSYNC, true, "the same, O_DIRECT"),
    def("mmap", Kind::Mmap(false), false, "memcpy from a mapping; reads only"),
    def("nowait-guard", Kind::Guard, false, "nowait-user, but pages are lent; reads only"),
    def("io_uring-wait", URING_WAIT, false, "io_uring, one system call submits and waits"),
    def("io_uring-wait-direct", URING_WAIT, true, "the same, O_DIRECT"),
    def(
        "io_uring-defer",
        Kind::Uring(Style::lazy(Issuer::Single)),
        false,
        "the same with DEFER_TASKRUN and SINGLE_ISSUER",
    ),
    def(
        "io_uring-defer-direct",
        Kind::Uring(Style::lazy(Issuer::Single)),
        true,
        "the same, O_DIRECT",
    ),
    def("psync-ahead", Kind::Psync(false, AHEAD_BYTES), false, "pread, told of 2 MiB ahead"),
    def("preadv2-nowait", Kind::Psync(true, 0), false, "preadv2 with RWF_NOWAIT first"),
    def("mmap-populated", Kind::Mmap(true), false, "memcpy from a populated mapping; reads only"),
    def("memcpy", Kind::Memcpy, false, "copies from private huge pages: the ceiling; reads only"),
    def("null", Kind::Null, false, "nothing is done: the harness itself"),
];

pub(crate) trait Task {
    type Output;

    fn run<E: Engine>(self, engine: &E) -> Result<Self::Output>;
}

/// Finds an engine by its name.
pub fn find(name: &str) -> Option<&'static EngineDef> {
    ENGINES.iter().find(|engine| engine.name == name)
}

impl EngineDef {
    /// Returns `true` if the engine carries out the requests of a thread one by one, whatever the
    /// depth.
    pub fn is_synchronous(&self) -> bool {
        matches!(self.kind, Kind::Psync(..) | Kind::Mmap(_) | Kind::Memcpy)
    }

    /// Returns `true` if the engine can write.
    pub fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Mmap(_) | Kind::Memcpy | Kind::Guard)
    }

    /// Returns `true` if the engine has a page cache in its own process.
    pub fn has_own_cache(&self) -> bool {
        matches!(self.kind, Kind::Native(CacheMode::User, _) | Kind::Guard)
    }

    pub(crate) fn has_vectors(&self) -> bool {
        matches!(self.kind, Kind::Native(..) | Kind::Uring(_))
    }

    pub(crate) fn with<T: Task>(&self, job: &Job, task: T) -> Result<T::Output> {
        if job.work.writes() && !self.writes() {
            return Err(Failure::usage("this engine only reads"));
        }
        let direct = self.direct;
        match self.kind {
            Kind::Native(cache, submit) => task.run(&Native::open(job, cache, submit)?),
            Kind::Guard => task.run(&Guard::open(job)?),
            Kind::Aio => task.run(&OnFiles::open(job, direct, AioPeer::new)?),
            Kind::Uring(style) => {
                task.run(&OnFiles::open(job, direct, |f, b| UringPeer::new(style, f, b))?)
            }
            Kind::Pool => task.run(&OnFiles::open(job, direct, PoolPeer::new)?),
            Kind::Psync(nowait, ahead) => {
                task.run(&OnFiles::open(job, direct, psync(nowait, ahead))?)
            }
            Kind::Mmap(populate) => task.run(&Memory::map(job, populate)?),
            Kind::Memcpy => task.run(&Memory::copy(job)?),
            Kind::Null => task.run(&Null),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for engine in ENGINES {
            let same = ENGINES.iter().filter(|other| other.name == engine.name).count();
            assert_eq!((find(engine.name).map(|found| found.name), same), (Some(engine.name), 1));
        }
        assert!(find("tape").is_none());
    }
}
