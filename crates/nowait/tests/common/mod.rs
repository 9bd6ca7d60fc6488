//! What the tests of the native API share.

use nowait::{BackendChoice, CacheMode, File, Nowait, OpenOptions, SubmitMode};
use nowait_block::conformance::note_skip_here;
use std::path::Path;

#[allow(dead_code, reason = "not every test file counts in blocks")]
pub(crate) const BLOCK: usize = 4096;

/// Small, so that files do not fit.
const CACHE_BYTES: u64 = 4 << 20;

pub(crate) const BACKENDS: [BackendChoice; 3] =
    [BackendChoice::Uring, BackendChoice::Kaio, BackendChoice::Threads];

/// Runs a claim on every backend and submit mode that works here, in all cache modes.
pub(crate) fn everywhere(claim: impl Fn(&Nowait, CacheMode)) {
    for backend in BACKENDS {
        for submit in [SubmitMode::Auto, SubmitMode::Offload] {
            let builder = Nowait::builder().backend(backend).submit(submit);
            let nowait = match builder.cache_bytes(CACHE_BYTES).build() {
                Ok(nowait) => nowait,
                Err(error) => {
                    note_skip_here(&error.to_string());
                    continue;
                }
            };
            claim(&nowait, CacheMode::User);
            claim(&nowait, CacheMode::Host);
            claim(&nowait, CacheMode::Direct);
        }
    }
}

/// A folder on a real disk: direct I/O on a memory file system is something else.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

/// Opens a file for everything, creating it.
pub(crate) fn open(nowait: &Nowait, mode: CacheMode, path: &Path) -> File {
    let options = OpenOptions::new().read(true).write(true).create(true).cache(mode);
    options.open(nowait, path).unwrap()
}
