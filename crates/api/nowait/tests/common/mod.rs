//! Support for the tests of the native API.

use nowait::{BackendChoice, CacheMode, File, Nowait, OpenOptions, SubmitMode};
use nowait_block::skip::note_skip_here;
use std::{path::Path, sync::Mutex};

#[allow(dead_code, reason = "not every test file counts in blocks")]
pub(crate) const BLOCK: usize = 4096;

/// Size of the page cache; small, so that the tests' larger files do not fit into it.
const CACHE_BYTES: u64 = 4 << 20;

/// Miri supports neither io_uring nor native AIO.
#[cfg(miri)]
pub(crate) const BACKENDS: [BackendChoice; 1] = [BackendChoice::Threads];
/// io_uring is last: some time after the close of a ring, the kernel (`io_ring_exit_work`)
/// interrupts the system calls in which threads that used the ring sleep.
#[cfg(not(miri))]
pub(crate) const BACKENDS: [BackendChoice; 3] =
    [BackendChoice::Kaio, BackendChoice::Threads, BackendChoice::Uring];

/// Runs a check on every backend that works here, in each submit mode.
#[allow(dead_code, reason = "not every test file is about one engine after another")]
pub(crate) fn on_every_engine(claim: impl Fn(&Nowait)) {
    for backend in BACKENDS {
        for submit in [SubmitMode::Auto, SubmitMode::Offload] {
            let builder = Nowait::builder().backend(backend).submit(submit);
            match builder.cache_bytes(CACHE_BYTES).build() {
                Ok(nowait) => claim(&nowait),
                Err(error) => note_skip_here(&error.to_string()),
            }
        }
    }
}

#[allow(dead_code, reason = "not every test file is about files")]
pub(crate) fn everywhere(claim: impl Fn(&Nowait, CacheMode)) {
    // Miri has no direct I/O, which the page cache needs too.
    let modes: &[CacheMode] = match cfg!(miri) {
        true => &[CacheMode::Host],
        false => &[CacheMode::User, CacheMode::Host, CacheMode::Direct],
    };
    on_every_engine(|nowait| modes.iter().for_each(|mode| claim(nowait, *mode)));
}

/// Makes a folder in /var/tmp, which is mostly on a disk: direct I/O on a memory file system
/// behaves differently.
#[allow(dead_code, reason = "not every test file is about files")]
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

#[allow(dead_code, reason = "not every test file is about files")]
pub(crate) fn open(nowait: &Nowait, mode: CacheMode, path: &Path) -> File {
    let options = OpenOptions::new().read(true).write(true).create(true).cache(mode);
    options.open(nowait, path).unwrap()
}

/// Leaks a value, like [`core::mem::forget`], but keeps a pointer to it, so that a leak detector
/// does not report it.
#[allow(dead_code, reason = "not every test file forgets")]
pub(crate) fn forget<T>(value: T) {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    KEPT.lock().unwrap().push(Box::into_raw(Box::new(value)) as usize);
}
