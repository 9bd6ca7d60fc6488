//! The ways to launch the same unmodified fio.

use crate::args::unknown;
use crate::error::Result;

/// One way to launch fio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Launch {
    /// fio's `libaio` engine on the system's library; the reference of all ratios.
    System,
    /// The same engine with nowait preloaded, backend `auto`.
    Nowait,
    /// The same, while a seccomp filter refuses `io_uring` with EPERM, as containers do.
    NowaitNoUring,
    /// Backend `kaio`: the kernel's own AIO underneath.
    NowaitKaio,
    /// Backend `threads`: a pool of threads underneath.
    NowaitThreads,
    /// Submit mode `offload`: nothing ever runs inside `io_submit`.
    NowaitOffload,
    /// fio's own `io_uring` engine, nothing preloaded: the peer that a rewrite would reach.
    IoUring,
    /// fio's `posixaio` engine on the C library's threads; the reference of `bench posix`.
    PosixAio,
    /// The same engine with nowait preloaded.
    NowaitPosix,
}

impl Launch {
    /// Every one, the reference first.
    pub(crate) const ALL: [Self; 9] = [
        Self::System,
        Self::Nowait,
        Self::NowaitNoUring,
        Self::NowaitKaio,
        Self::NowaitThreads,
        Self::NowaitOffload,
        Self::IoUring,
        Self::PosixAio,
        Self::NowaitPosix,
    ];

    /// Returns the name used on the command line, in tables and in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Nowait => "nowait",
            Self::NowaitNoUring => "nowait-no-uring",
            Self::NowaitKaio => "nowait-kaio",
            Self::NowaitThreads => "nowait-threads",
            Self::NowaitOffload => "nowait-offload",
            Self::IoUring => "io_uring",
            Self::PosixAio => "posixaio",
            Self::NowaitPosix => "nowait-posixaio",
        }
    }

    /// Finds one by its name; `libaio` is another name of the reference.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        let name = if name == "libaio" { "system" } else { name };
        Self::ALL
            .into_iter()
            .find(|launch| launch.name() == name)
            .ok_or_else(|| unknown("engine", name, &Self::ALL.map(Self::name)))
    }

    /// Returns what the reader of a report must know.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::System => "fio's libaio engine on the system's libaio",
            Self::Nowait | Self::NowaitPosix => "the same fio with libnowait_preload.so",
            Self::NowaitNoUring => "nowait while a seccomp filter refuses io_uring (EPERM)",
            Self::NowaitKaio => "nowait, NOWAIT_BACKEND=kaio",
            Self::NowaitThreads => "nowait, NOWAIT_BACKEND=threads",
            Self::NowaitOffload => "nowait, NOWAIT_SUBMIT=offload",
            Self::IoUring => "fio's own io_uring engine",
            Self::PosixAio => "fio's posixaio engine on the C library's POSIX AIO",
        }
    }

    /// Returns fio's name of the engine.
    pub(crate) fn engine(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::PosixAio | Self::NowaitPosix => "posixaio",
            _ => "libaio",
        }
    }

    /// Tells whether the library is preloaded.
    pub(crate) fn preloads(self) -> bool {
        !matches!(self, Self::System | Self::IoUring | Self::PosixAio)
    }

    /// Tells whether the `io_uring` system calls are refused.
    pub(crate) fn forbids_uring(self) -> bool {
        self == Self::NowaitNoUring
    }

    /// Returns the settings of the library.
    pub(crate) fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::System | Self::IoUring | Self::PosixAio => &[],
            Self::Nowait | Self::NowaitNoUring | Self::NowaitPosix => &[("NOWAIT_BACKEND", "auto")],
            Self::NowaitKaio => &[("NOWAIT_BACKEND", "kaio")],
            Self::NowaitThreads => &[("NOWAIT_BACKEND", "threads")],
            Self::NowaitOffload => &[("NOWAIT_SUBMIT", "offload")],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for launch in Launch::ALL {
            assert_eq!(Launch::parse(launch.name()), Ok(launch));
        }
        assert_eq!(Launch::parse("libaio"), Ok(Launch::System));
    }

    #[test]
    fn an_unknown_name_is_wrong_usage() {
        let error = Launch::parse("windows").expect_err("no such engine");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("nowait-kaio"));
    }
}
