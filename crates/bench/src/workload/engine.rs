//! The engines by name, and how each is opened.

use std::path::{Path, PathBuf};

use nowait::{BackendChoice, CacheMode, SubmitMode};

use crate::error::{BenchError, Result};
use crate::peers::library::Library;
use crate::peers::memory::Memory;
use crate::peers::native::Native;
use crate::peers::null::Null;
use crate::peers::pool::Pool;
use crate::peers::posix::Posix;
use crate::peers::psync::Psync;
use crate::peers::ring::Uring;
use crate::peers::{Engine, Place};

/// Which peer it is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Native(CacheMode, SubmitMode),
    /// A `libaio.so.1`: nowait's, or the system's.
    Library {
        nowait: bool,
    },
    Uring {
        registered: bool,
    },
    Posix,
    Pool,
    Psync,
    Mmap,
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
const URING: Kind = Kind::Uring { registered: false };
const AUTO: SubmitMode = SubmitMode::Auto;

/// Every engine.
pub(crate) const ENGINES: [EngineDef; 20] = [
    def("nowait-user", Kind::Native(CacheMode::User, AUTO), false, "nowait, its own page cache"),
    def("nowait-host", host(AUTO), false, "nowait, the kernel's page cache"),
    def("nowait-inline", host(SubmitMode::Inline), false, "the same, first attempts in submit"),
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
        Kind::Uring { registered: true },
        true,
        "the same, O_DIRECT, file and buffers registered",
    ),
    def("posixaio", Kind::Posix, false, "POSIX AIO of the C library"),
    def("posixaio-direct", Kind::Posix, true, "the same, O_DIRECT"),
    def("threads", Kind::Pool, false, "a pool of up to 32 threads, pread and pwrite"),
    def("threads-direct", Kind::Pool, true, "the same, O_DIRECT"),
    def("psync", Kind::Psync, false, "pread and pwrite"),
    def("psync-direct", Kind::Psync, true, "the same, O_DIRECT"),
    def("mmap", Kind::Mmap, false, "memcpy from a mapping; reads only"),
    def("null", Kind::Null, false, "nothing is done: the harness itself"),
];

/// What is done with an opened engine.
pub(crate) trait Task {
    type Output;

    fn run<E: Engine>(self, engine: &E) -> Result<Self::Output>;
}

/// Finds an engine by its name.
pub(crate) fn find(name: &str) -> Result<&'static EngineDef> {
    ENGINES.iter().find(|engine| engine.name == name).ok_or_else(|| {
        let known: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
        BenchError::usage(format!("no engine '{name}'; there are {}", known.join(", ")))
    })
}

impl EngineDef {
    /// Tells whether requests of a thread are carried out one by one, whatever its depth.
    pub(crate) fn is_synchronous(&self) -> bool {
        matches!(self.kind, Kind::Psync | Kind::Mmap)
    }

    /// Tells whether the engine can write.
    pub(crate) fn writes(&self) -> bool {
        self.kind != Kind::Mmap
    }

    /// Tells whether it is nowait, called natively.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self.kind, Kind::Native(..))
    }

    /// Returns the library it loads: the one of the system, or one under `dist`.
    pub(crate) fn library(&self, dist: Option<&Path>) -> Result<Option<PathBuf>> {
        match self.kind {
            Kind::Library { nowait: false } => Ok(Some("libaio.so.1".into())),
            Kind::Library { nowait: true } => drop_in(dist).map(Some),
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
                (place.backend, place.submit) = (BackendChoice::Auto, submit);
                task.run(&Native::open(&place, cache)?)
            }
            Kind::Library { .. } => {
                let library = library.ok_or_else(|| BenchError::usage("no libaio was named"))?;
                task.run(&Library::open(&place, library)?)
            }
            Kind::Uring { registered } => task.run(&Uring::open(&place, Uring::eager(registered))?),
            Kind::Posix => task.run(&Posix::open(&place)?),
            Kind::Pool => task.run(&Pool::open(&place)?),
            Kind::Psync => task.run(&Psync::open(&place, false)?),
            Kind::Mmap => task.run(&Memory::map(&place, false)?),
            Kind::Null => task.run(&Null),
        }
    }
}

/// Finds nowait's libaio in `dist`, beside this program, or in the folder dist.
fn drop_in(dist: Option<&Path>) -> Result<PathBuf> {
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).and_then(Path::parent);
    let folders: Vec<&Path> = match dist {
        Some(dist) => vec![dist],
        None => beside.into_iter().chain([Path::new("dist")]).collect(),
    };
    let candidates = folders.iter().map(|folder| folder.join("lib/libaio.so.1"));
    candidates.clone().find_map(|path| path.canonicalize().ok()).ok_or_else(|| {
        let tried: Vec<String> = candidates.map(|path| path.display().to_string()).collect();
        BenchError::usage(format!("no {}; run `make dist` or pass --dist", tried.join(" and ")))
    })
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
