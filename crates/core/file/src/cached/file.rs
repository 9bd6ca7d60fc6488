//! A file in the engine's own page cache, and one open of it.

use super::{DirtyFiles, inode_marks::Mark, writers::Writers};
use crate::{
    Engine,
    hold::{BothTables, OpenCount},
    order::InodeKey,
};
use core::sync::atomic::AtomicBool;
use nowait_block::bio::Descriptor;
use nowait_cache::{CachedFile, OpenFile, readahead::Advice as Pattern};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    file::{self, Advice, Version},
};
use std::{ops::Range, sync::Arc};

/// Longest readahead window, in pages: 2 MiB keep a device busy that takes 64 KiB requests.
const WINDOW_PAGES_MAX: u32 = 512;

/// A file in the engine's page cache, shared by all its opens in the process.
#[derive(Debug)]
pub struct UserFile {
    pub(super) key: InodeKey,
    pub(super) cached: Arc<CachedFile>,
    /// Readahead state of requests that come without an open of their own; it tells several streams
    /// apart.
    pub(super) reads: Arc<OpenFile>,
    /// Handles that count themselves; not by references, which requests and the driver have too.
    pub(super) handles: Arc<OpenCount>,
    pub(super) writers: Writers,
    /// The file's blocks go past the kernel's cache.
    pub(super) direct: bool,
    /// The file as it was before any of its pages was read. Never as it was after a write of ours:
    /// that of another process may have come before.
    pub(super) seen: Mutex<Version>,
    /// Writes past the cache are waited for, which were in flight before.
    pub(super) is_opening: AtomicBool,
    /// The descriptor that reads of the file, and stat, use.
    pub(super) opened: Arc<BothTables>,
    pub(super) dirty_files: Arc<DirtyFiles>,
    /// The file is in `dirty_files`; changed under the lock of that list.
    pub(super) is_kept: AtomicBool,
    /// Writes past the cache find it by that.
    pub(super) _mark: Mark,
}

/// A user file as one of its opens: what reading ahead remembers, and what it was advised, is
/// that open's.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    /// The file.
    pub file: &'a Arc<UserFile>,
    /// The state of the open, from [`UserFile::new_open`].
    pub reads: &'a Arc<OpenFile>,
}

impl Opened<'_> {
    /// Takes advice, as posix_fadvise(2), for `range` in bytes; what is to be read ahead, or read
    /// no more, begins at once, and no request waits for it.
    pub fn advise(&self, engine: &Arc<Engine>, range: Range<u64>, advice: Advice) {
        let (file, reads) = (self.file.cached(), self.reads);
        match advice {
            Advice::Normal => reads.advise(Pattern::Normal),
            Advice::Random => reads.advise(Pattern::Random),
            Advice::Sequential => reads.advise(Pattern::Sequential),
            Advice::WillNeed => {
                let (mut bios, end) = (Vec::new(), range.end.min(file.size()));
                reads.will_need(file, range.start..end, &mut bios);
                engine.carry(&mut bios);
            }
            Advice::DontNeed => reads.forget(file, range),
        }
    }
}

impl<'a> From<&'a Arc<UserFile>> for Opened<'a> {
    /// The open that all callers share that know the file by a descriptor only.
    fn from(file: &'a Arc<UserFile>) -> Opened<'a> {
        Opened { file, reads: &file.reads }
    }
}

impl UserFile {
    /// Makes the state of a new open, see [`Opened`].
    pub fn new_open() -> Arc<OpenFile> {
        Arc::new(OpenFile::new(WINDOW_PAGES_MAX))
    }

    /// Returns the file's pages.
    pub fn cached(&self) -> &Arc<CachedFile> {
        &self.cached
    }

    /// Returns device and inode.
    pub fn key(&self) -> InodeKey {
        self.key
    }

    pub(super) fn version(&self) -> Result<Version, Errno> {
        self.opened.number().and_then(file::version)
    }

    /// Returns its descriptors in the application's table.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.opened.here().into_iter().chain(self.writers.descriptors())
    }
}
