//! The one registry of peers: engines by name, and how each is opened.

use std::path::{Path, PathBuf};

use nowait::{CacheMode, SubmitMode};
use nowait_sys::uring::Issuer;

use super::aio::{AioPeer, Calls};
use super::lower::Lower;
use super::memory::Memory;
use super::native::Native;
use super::null::Null;
use super::pool::PoolPeer;
use super::posix::PosixPeer;
use super::psync::psync;
use super::ring::{Style, UringPeer};
use super::{Engine, OnFile, Place};
use crate::args::{found_in_dist, unknown};
use crate::error::{BenchError, Result};

/// Which peer it is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Native(CacheMode, SubmitMode),
    /// One level below the native API; pages up to so many bytes are lent.
    Lower(usize),
    /// A `libaio.so.1`: nowait's, or the system's.
    Library {
        nowait: bool,
    },
    /// The system calls of the kernel's native AIO.
    Kaio,
    Uring(Style),
    Posix,
    Pool,
    /// `true` if it asks not to wait first; bytes that it asks the kernel to read ahead.
    Psync(bool, u64),
    /// `true` if the whole file is read when it is mapped.
    Mmap(bool),
    Memcpy,
    Null,
}

/// An engine that can be named on the command line.
#[derive(Debug, PartialEq)]
pub(crate) struct EngineDef {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    kind: Kind,
    /// Opens the file with `O_DIRECT`.
    pub(crate) direct: bool,
}

const fn def(name: &'static str, kind: Kind, direct: bool, about: &'static str) -> EngineDef {
    EngineDef { name, about, kind, direct }
}

const fn host(submit: SubmitMode) -> Kind {
    Kind::Native(CacheMode::Host, submit)
}

const SYSTEM: Kind = Kind::Library { nowait: false };
const DROP_IN: Kind = Kind::Library { nowait: true };
const URING: Kind = Kind::Uring(Style::eager(false));
const URING_WAIT: Kind = Kind::Uring(Style::lazy(Issuer::Any));
const PSYNC: Kind = Kind::Psync(false, 0);
/// The longest window of our readahead.
const AHEAD_BYTES: u64 = 2 << 20;
/// Pages are lent one by one.
const LENT_BYTES: usize = 4096;
const AUTO: SubmitMode = SubmitMode::Auto;

/// Every engine.
pub(crate) const ENGINES: [EngineDef; 30] = [
    def("nowait-user", Kind::Native(CacheMode::User, AUTO), false, "nowait, its own page cache"),
    def("nowait-host", host(AUTO), false, "nowait, the kernel's page cache"),
    def("nowait-offload", host(SubmitMode::Offload), false, "the same, nothing done in submit"),
    def("nowait-direct", Kind::Native(CacheMode::Direct, AUTO), true, "nowait, O_DIRECT"),
    def("libaio-nowait", DROP_IN, false, "a program of libaio, nowait's libaio.so.1 in its place"),
    def("libaio-nowait-direct", DROP_IN, true, "the same, O_DIRECT"),
    def("libaio", SYSTEM, false, "the system's libaio"),
    def("libaio-direct", SYSTEM, true, "the system's libaio, O_DIRECT"),
    def("io_uring", URING, false, "io_uring, one system call a submit"),
    def("io_uring-direct", URING, true, "the same, O_DIRECT"),
    def(
        "io_uring-registered",
        Kind::Uring(Style::eager(true)),
        true,
        "the same, O_DIRECT, file and buffers registered, not interrupted by what ends",
    ),
    def("posixaio", Kind::Posix, false, "POSIX AIO of the C library"),
    def("posixaio-direct", Kind::Posix, true, "the same, O_DIRECT"),
    def("threads", Kind::Pool, false, "a pool of up to 32 threads, pread and pwrite"),
    def("threads-direct", Kind::Pool, true, "the same, O_DIRECT"),
    def("psync", PSYNC, false, "pread and pwrite"),
    def("psync-direct", PSYNC, true, "the same, O_DIRECT"),
    def("mmap", Kind::Mmap(false), false, "memcpy from a mapping; reads only"),
    def("nowait-submission", Kind::Lower(0), false, "one level below the native API; reads only"),
    def("nowait-guard", Kind::Lower(LENT_BYTES), false, "the same without a copy: pages are lent"),
    def("kaio", Kind::Kaio, false, "the kernel's native AIO by its system calls"),
    def("kaio-direct", Kind::Kaio, true, "the same, O_DIRECT"),
    def("io_uring-wait", URING_WAIT, false, "io_uring, one system call submits and waits"),
    def("io_uring-wait-direct", URING_WAIT, true, "the same, O_DIRECT"),
    def(
        "io_uring-defer",
        Kind::Uring(Style::lazy(Issuer::Single)),
        false,
        "the same with DEFER_TASKRUN and SINGLE_ISSUER",
    ),
    def("psync-ahead", Kind::Psync(false, AHEAD_BYTES), false, "pread, told of 2 MiB ahead"),
    def("preadv2-nowait", Kind::Psync(true, 0), false, "preadv2 with RWF_NOWAIT first"),
    def("mmap-populated", Kind::Mmap(true), false, "memcpy from a populated mapping; reads only"),
    def("memcpy", Kind::Memcpy, false, "copies from private huge pages: the ceiling; reads only"),
    def("null", Kind::Null, false, "nothing is done: the harness itself"),
];

/// The work with an opened engine.
pub(crate) trait Task {
    type Output;

    fn run<E: Engine>(self, engine: &E) -> Result<Self::Output>;
}

/// Finds engines by their names.
pub(crate) fn find_all(names: &[&str]) -> Result<Vec<&'static EngineDef>> {
    names.iter().map(|name| find(name)).collect()
}

/// Finds an engine by its name.
pub(crate) fn find(name: &str) -> Result<&'static EngineDef> {
    ENGINES
        .iter()
        .find(|engine| engine.name == name)
        .ok_or_else(|| unknown("engine", name, &ENGINES.each_ref().map(|engine| engine.name)))
}

impl EngineDef {
    /// Returns `true` if requests of a thread are carried out one by one, whatever its depth.
    pub(crate) fn is_synchronous(&self) -> bool {
        matches!(self.kind, Kind::Psync(..) | Kind::Mmap(_) | Kind::Memcpy)
    }

    /// Returns `true` if the engine can write.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Mmap(_) | Kind::Memcpy | Kind::Lower(_))
    }

    /// Returns `true` if it is nowait, called natively.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self.kind, Kind::Native(..))
    }

    /// Returns `true` if the pages lie in a cache of the process that opens it.
    pub(crate) fn has_own_cache(&self) -> bool {
        matches!(self.kind, Kind::Native(CacheMode::User, _) | Kind::Lower(_))
    }

    /// Returns the library it loads: the one of the system, or one under `dist`.
    pub(crate) fn library(&self, dist: Option<&Path>) -> Result<Option<PathBuf>> {
        match self.kind {
            Kind::Library { nowait: false } => Ok(Some("libaio.so.1".into())),
            Kind::Library { nowait: true } => found_in_dist(dist, "lib/libaio.so.1")
                .map(Some)
                .map_err(|error| BenchError::usage(error.to_string())),
            _ => Ok(None),
        }
    }

    /// Opens the engine for `place` and does `task` with it.
    pub(crate) fn with<T: Task>(
        &self,
        place: &Place,
        library: Option<&Path>,
        task: T,
    ) -> Result<T::Output> {
        let mut place = Place { direct: self.direct, ..place.clone() };
        match self.kind {
            Kind::Native(cache, submit) => {
                place.submit = submit;
                task.run(&Native::open(&place, cache)?)
            }
            Kind::Lower(lent_bytes_max) => task.run(&Lower::open(&place, lent_bytes_max)?),
            Kind::Library { .. } => {
                let library = library.ok_or_else(|| BenchError::usage("no libaio was named"))?;
                let calls = Calls::load(library)?;
                task.run(&OnFile::open(&place, |f, b| AioPeer::new(Some(calls), vec![f], b))?)
            }
            Kind::Kaio => task.run(&OnFile::open(&place, |f, b| AioPeer::new(None, vec![f], b))?),
            Kind::Uring(style) => {
                task.run(&OnFile::open(&place, |f, b| UringPeer::new(style, f, b))?)
            }
            Kind::Posix => task.run(&OnFile::open(&place, |f, b| Ok(PosixPeer::new(f, b)))?),
            Kind::Pool => task.run(&OnFile::open(&place, PoolPeer::new)?),
            Kind::Psync(nowait, ahead) => task.run(&OnFile::open(&place, psync(nowait, ahead))?),
            Kind::Mmap(populate) => task.run(&Memory::map(&place, populate)?),
            Kind::Memcpy => task.run(&Memory::copy(&place)?),
            Kind::Null => task.run(&Null),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for engine in &ENGINES {
            assert_eq!(find(engine.name).expect("known").name, engine.name);
            let same = ENGINES.iter().filter(|other| other.name == engine.name).count();
            assert_eq!(same, 1, "{}", engine.name);
        }
        assert_eq!(find("tape").map_err(|error| error.exit_code()).err(), Some(2));
    }

    #[test]
    fn a_missing_drop_in_is_told_with_its_place() {
        let engine = find("libaio-nowait").expect("known");
        let error = engine.library(Some(Path::new("/nonexistent"))).expect_err("not there");
        assert!(error.to_string().contains("/nonexistent/lib/libaio.so.1"), "{error}");
    }
}
