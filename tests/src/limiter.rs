//! A shared object that limits the program that loads it (`tests/limiter`).
//!
//! The system's compiler builds the object at its first use. `Subject::launch` preloads it if the
//! subject has a limit, so that other tests can run under the limit:
//! `NOWAIT_TEST_LIMIT=locked cargo test -p nowait-tests --test lifecycle`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::program::Program;
use crate::scratch::Scratch;

/// The variable with the limit, in the environments of the tests and of the program.
pub const VARIABLE: &str = "NOWAIT_TEST_LIMIT";

/// The limit of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// 1 GiB of addresses (`RLIMIT_AS`).
    Addresses,
    /// mlockall(2) locks all present and future memory.
    Locked,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 2] = [Self::Addresses, Self::Locked];

    /// Returns the limit's name in `NOWAIT_TEST_LIMIT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Addresses => "addresses",
            Self::Locked => "locked",
        }
    }

    /// Returns the limit that `NOWAIT_TEST_LIMIT` names; `None` if the variable is not set.
    pub fn of_this_run() -> Option<Self> {
        let name = std::env::var(VARIABLE).ok()?;
        let limit = Self::ALL.into_iter().find(|it| it.name() == name);
        Some(limit.unwrap_or_else(|| panic!("{VARIABLE}={name}: addresses or locked expected")))
    }
}

/// Returns the path of the built object.
///
/// # Panics
/// The compiler is missing or fails: the program must not run without its limit.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<(PathBuf, Scratch)> = OnceLock::new();
    let (library, _) = BUILT.get_or_init(|| {
        let folder = Scratch::new("limiter");
        let library = folder.file("limiter.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("limiter/limiter.c");
        let cc =
            Program::new("cc").args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).succeed();
        (library, folder)
    });
    library
}
