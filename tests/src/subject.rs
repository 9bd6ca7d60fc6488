//! Launches an unmodified program under the system's libaio or under nowait.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::disturber;
use crate::limiter::{self, Limit};
use crate::program::{Output, Program};
use crate::report::Report;

/// The library that serves the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The system's libaio.
    System,
    /// `dist/lib/libaio.so.1`, found through `LD_LIBRARY_PATH`.
    Libaio,
    /// `dist/lib/libnowait_preload.so`, through `LD_PRELOAD`.
    Preload,
}

/// The backend that nowait is set to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The backend that nowait chooses.
    Auto,
    /// `io_uring`.
    Uring,
    /// The kernel's native AIO.
    Kaio,
    /// Threads.
    Threads,
}

/// The place where the first iteration of a request runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submit {
    /// nowait decides.
    Auto,
    /// On the engine's threads.
    Offload,
}

/// One way to launch a program.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// The library that serves the program.
    pub library: Library,
    /// The backend, which has no effect on the system's library.
    pub backend: Backend,
    /// The submit mode, which has no effect on the system's library.
    pub submit: Submit,
    /// The seed of a thread that disturbs the program, see [`crate::disturber`].
    pub disturb: Option<u64>,
    /// The limit of the program, see [`crate::limiter`].
    pub limit: Option<Limit>,
}

impl Library {
    /// Returns the library with this name in `NOWAIT_TEST_SUBJECT`.
    pub fn named(name: &str) -> Option<Self> {
        [Self::System, Self::Libaio, Self::Preload].into_iter().find(|it| it.name() == name)
    }

    /// Returns the library's name in `NOWAIT_TEST_SUBJECT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Libaio => "libaio",
            Self::Preload => "preload",
        }
    }
}

impl Backend {
    /// The backends that can be chosen by name.
    pub const NAMED: [Self; 3] = [Self::Uring, Self::Kaio, Self::Threads];

    /// Returns the backend's name in `NOWAIT_BACKEND` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Kaio => "kaio",
            Self::Threads => "threads",
        }
    }

    /// Returns the backends of this run, from `NOWAIT_TEST_BACKENDS`.
    pub fn selected() -> Vec<Self> {
        let wanted = std::env::var("NOWAIT_TEST_BACKENDS");
        let wanted = wanted.unwrap_or_else(|_| "uring,kaio,threads".to_owned());
        let named = |name: &str| Self::NAMED.into_iter().find(|it| it.name() == name.trim());
        let parse = |name| named(name).unwrap_or_else(|| panic!("unknown backend {name}"));
        wanted.split(',').filter(|name| !name.is_empty()).map(parse).collect()
    }
}

impl Submit {
    /// Returns the mode's name in `NOWAIT_SUBMIT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Offload => "offload",
        }
    }
}

impl Subject {
    /// The system's library: the reference.
    pub const SYSTEM: Self = Self {
        library: Library::System,
        backend: Backend::Auto,
        submit: Submit::Auto,
        disturb: None,
        limit: None,
    };

    /// Returns the subject with this library and backend; `None`: the user has left the subject out
    /// of this run, which does not count as a skip.
    ///
    /// Under `NOWAIT_TEST_SUBJECT=system` the subject is the system's library, for
    /// [`Backend::Auto`] and the first backend of [`Backend::selected`] only: a test runs once for
    /// each library that it is declared for.
    pub fn chosen(library: Library, backend: Backend) -> Option<Self> {
        let backends = Backend::selected();
        let first = backends.first().is_some_and(|it| *it == backend || backend == Backend::Auto);
        match only_library() {
            Some(Library::System) => {
                let (disturb, limit) = (disturber::seed(), Limit::of_this_run());
                return first.then_some(Self { disturb, limit, ..Self::SYSTEM });
            }
            Some(other) if other != library => return None,
            _ => {}
        }
        if backend != Backend::Auto && !backends.contains(&backend) {
            return None;
        }
        let (submit, disturb) = (Submit::Auto, disturber::seed());
        let limit = Limit::of_this_run();
        Some(Self { library, backend, submit, disturb, limit })
    }

    /// Sets the seed of the disturber; `None`: no disturber.
    pub fn disturb(self, seed: Option<u64>) -> Self {
        Self { disturb: seed, ..self }
    }

    /// Sets the limit.
    pub fn limit(self, limit: Limit) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Sets the submit mode.
    pub fn submit(self, submit: Submit) -> Self {
        Self { submit, ..self }
    }

    /// Returns `true` if this is the system's own library.
    pub fn is_system(self) -> bool {
        self.library == Library::System
    }

    /// Prepares `program` to run under this subject. A program under nowait gets a report file of
    /// its own.
    ///
    /// # Panics
    /// The library has not been built: that must not look like a pass.
    pub fn launch(self, program: impl AsRef<OsStr>) -> Program {
        let program = Program::new(program);
        let preload = (self.library == Library::Preload).then(|| built("lib/libnowait_preload.so"));
        let disturber = self.disturb.map(|_| disturber::library());
        let limiter = self.limit.map(|_| limiter::library());
        let objects = disturber.into_iter().chain(limiter).chain(preload.as_deref());
        let objects = std::env::join_paths(objects).expect("paths without a colon");
        let program = match objects.is_empty() {
            true => program,
            false => program.env("LD_PRELOAD", objects),
        };
        let seed = self.disturb.map(|seed| (disturber::SEED, seed.to_string()));
        let limit = self.limit.map(|limit| (limiter::VARIABLE, limit.name().to_owned()));
        let wanted = seed.into_iter().chain(limit);
        let program = wanted.fold(program, |it, (name, value)| it.env(name, value));
        let program = match self.library {
            Library::System => return program,
            Library::Libaio => {
                built("lib/libaio.so.1");
                program.env("LD_LIBRARY_PATH", dist().join("lib"))
            }
            Library::Preload => program,
        };
        program
            .env("NOWAIT_BACKEND", self.backend.name())
            .env("NOWAIT_SUBMIT", self.submit.name())
            .report_to(report_file())
    }

    /// Demands that the program wrote a report: then it has loaded nowait's library. Demands
    /// nothing for the system's library.
    pub fn assert_loaded(self, output: &Output) {
        let loaded = self.is_system() || !output.reports.is_empty();
        assert!(loaded, "no report by {self}: was the library loaded?\n{output}");
    }

    /// Demands that the program's requests went through nowait, on the chosen backend.
    ///
    /// # Panics
    /// No process had requests through nowait, or another backend served them. Never panics for the
    /// system's library.
    pub fn assert_served(self, output: &Output) {
        if self.is_system() {
            return;
        }
        let served: Vec<&Report> = output.reports.iter().filter(|it| it.requests() > 0).collect();
        assert!(!served.is_empty(), "no report with requests > 0 by {self}\n{output}");
        for report in served {
            let named = self.backend == Backend::Auto || report.backend() == self.backend.name();
            assert!(named, "served by {} ({})", report.backend(), report.backend_reason());
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_system() {
            return f.write_str("system");
        }
        write!(f, "{}/{}/{}", self.library.name(), self.backend.name(), self.submit.name())
    }
}

/// Returns the built file `name` of `dist`.
pub fn built(name: &str) -> PathBuf {
    let path = dist().join(name);
    assert!(path.exists(), "{} is missing: run `make dist` first", path.display());
    path
}

fn dist() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist");
    let path = std::env::var_os("NOWAIT_DIST").map_or_else(default, PathBuf::from);
    path.canonicalize().unwrap_or(path)
}

fn only_library() -> Option<Library> {
    let name = std::env::var("NOWAIT_TEST_SUBJECT").ok()?;
    Some(Library::named(&name).unwrap_or_else(|| panic!("unknown NOWAIT_TEST_SUBJECT {name}")))
}

fn report_file() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("nowait-report-{}-{number}.json", std::process::id()))
}

/// Declares a test for each library and backend: `name::libaio::uring` and so on. A test calls
/// `check` with its [`Subject`] if this run includes the subject.
#[macro_export]
macro_rules! for_each_subject {
    ($name:ident, $check:expr, [$($library:ident),+]) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(mod $library {
                #[allow(unused_imports)]
                use super::*;
                $crate::for_each_subject!(@test $library, uring, Uring, $check);
                $crate::for_each_subject!(@test $library, kaio, Kaio, $check);
                $crate::for_each_subject!(@test $library, threads, Threads, $check);
            })+
        }
    };
    (@test $library:ident, $test:ident, $backend:ident, $check:expr) => {
        #[test]
        fn $test() {
            let library = $crate::subject::Library::named(stringify!($library)).unwrap();
            let backend = $crate::subject::Backend::$backend;
            if let Some(subject) = $crate::subject::Subject::chosen(library, backend) {
                ($check)(subject);
            }
        }
    };
}
