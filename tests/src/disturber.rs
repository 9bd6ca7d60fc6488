//! A thread that disturbs the program it runs in (`tests/disturber`), by a seed: it changes the
//! group of the process, forks, and sends signals to all threads.
//!
//! Built by the system's compiler at its first use, and preloaded, so that any program of any suite
//! runs under it: `NOWAIT_TEST_DISTURB=7 cargo test -p nowait-tests --test lifecycle`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::program::Program;
use crate::scratch::Scratch;

/// The variable with the seed, in the tests' environment and in that of the program.
pub const SEED: &str = "NOWAIT_TEST_DISTURB";

/// Set for a program whose own system calls must not say EINTR: then every signal comes with
/// `SA_RESTART`.
pub const RESTARTS: &str = "NOWAIT_TEST_DISTURB_RESTARTS";

/// The seed by which this run disturbs all programs.
///
/// # Panics
/// It is no number.
pub fn seed() -> Option<u64> {
    let seed = std::env::var(SEED).ok()?;
    Some(seed.parse().unwrap_or_else(|_| panic!("{SEED}={seed}: a number expected")))
}

/// The built object, to be preloaded before all others.
///
/// # Panics
/// There is no compiler: a program that asks to be disturbed must not be left alone.
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
