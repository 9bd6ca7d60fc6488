//! A shared object with a thread that disturbs the program that loads it (`tests/disturber`). The
//! thread sets the group of the process to its current value, forks, and sends signals to random
//! threads. A seed decides these actions and their order.
//!
//! The system's compiler builds the object at its first use. `Subject::launch` preloads it if the
//! subject has a seed, so that other tests can run with the disturber:
//! `NOWAIT_TEST_DISTURB=7 cargo test -p nowait-tests --test lifecycle`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::program::Program;
use crate::scratch::Scratch;

/// The variable with the seed, in the environments of the tests and of the program.
pub const SEED: &str = "NOWAIT_TEST_DISTURB";

/// The variable that a test sets for a program whose own system calls must not fail with EINTR. The
/// disturber then sends only a signal whose handler has `SA_RESTART`.
pub const RESTARTS: &str = "NOWAIT_TEST_DISTURB_RESTARTS";

/// Returns the seed for the disturber of this run; `None` if the variable is not set.
pub fn seed() -> Option<u64> {
    let seed = std::env::var(SEED).ok()?;
    Some(seed.parse().unwrap_or_else(|_| panic!("{SEED}={seed}: a number expected")))
}

/// Returns the path of the built object, to be preloaded before all others.
///
/// # Panics
/// The compiler is missing or fails: the program must not run undisturbed.
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
