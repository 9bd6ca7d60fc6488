//! A thread that disturbs the program it runs in (`tests/disturber`), by a seed: it sets the group
//! of the process, forks, and sends signals to all threads.
//!
//! The system's compiler builds it at its first use. It is preloaded, so that any program of any
//! suite runs under it: `NOWAIT_TEST_DISTURB=7 cargo test -p nowait-tests --test lifecycle`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::program::Program;
use crate::scratch::Scratch;

/// The variable with the seed, in the environments of the tests and of the program.
pub const SEED: &str = "NOWAIT_TEST_DISTURB";

/// Set for a program whose own system calls must not fail with EINTR: then every signal has
/// `SA_RESTART`.
pub const RESTARTS: &str = "NOWAIT_TEST_DISTURB_RESTARTS";

/// Returns the seed by which this run disturbs its programs.
///
/// # Panics
/// The variable is not a number.
pub fn seed() -> Option<u64> {
    let seed = std::env::var(SEED).ok()?;
    Some(seed.parse().unwrap_or_else(|_| panic!("{SEED}={seed}: a number expected")))
}

/// Returns the built object, to be preloaded before all others.
///
/// # Panics
/// There is no compiler, and the program must not run undisturbed.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<(PathBuf, Scratch)> = OnceLock::new();
    let (library, _) = BUILT.get_or_init(|| {
        let folder = Scratch::new("disturber");
        let library = folder.file("disturber.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("disturber/disturber.c");
        let cc =
            Program::new("cc").args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
        let cc = cc.args(["-shared", "-fPIC", "-pthread", "-o"]).arg(&library).arg(source);
        cc.succeed();
        (library, folder)
    });
    library
}
