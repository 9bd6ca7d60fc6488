//! A file in the engine's own page cache, and one open file that refers to it.

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

/// Longest readahead window, in pages: 2 MiB, enough for a device that takes 64 KiB requests.
const WINDOW_PAGES_MAX: u32 = 512;

/// A file in the engine's page cache, shared by all its open files in the process.
#[derive(Debug)]
pub struct UserFile {
    pub(super) key: InodeKey,
    pub(super) cached: Arc<CachedFile>,
    /// Readahead state of requests that come without an open file of their own.
    pub(super) reads: Arc<OpenFile>,
    /// Counts [`UserHandle`](super::UserHandle)s and the engine's descriptors. References to the
    /// file would not do: requests and the driver have some, too.
    pub(super) handles: Arc<OpenCount>,
    pub(super) writers: Writers,
    /// `true`: reads and writes of the file's blocks bypass the kernel's page cache.
    pub(super) direct: bool,
    /// The version of the file when the cache last had none of its pages. A write by this process
    /// does not renew this version: another process may have written before.
    pub(super) seen: Mutex<Version>,
    /// `true`: the open still waits for earlier writes that bypass the cache.
    pub(super) is_opening: AtomicBool,
    pub(super) opened: Arc<BothTables>,
    pub(super) dirty_files: Arc<DirtyFiles>,
    /// `true`: the file is in `dirty_files`; changed under the lock of that list.
    pub(super) is_kept: AtomicBool,
    /// By this mark, writes that would bypass the cache find the file.
    pub(super) _mark: Mark,
}

/// A user file with the readahead state and the advice of one of its open files.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    /// The file.
    pub file: &'a Arc<UserFile>,
    /// The state of the open file, from [`UserFile::new_open`].
    pub reads: &'a Arc<OpenFile>,
}

impl Opened<'_> {
    /// Takes advice as posix_fadvise(2) does; only `WillNeed` and `DontNeed` use `range`, in bytes.
    /// `WillNeed` starts the reads and `DontNeed` the removal of pages; the call waits for neither.
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
    /// Takes the readahead state that all callers without an open file of their own share.
    fn from(file: &'a Arc<UserFile>) -> Opened<'a> {
        Opened { file, reads: &file.reads }
    }
}

impl UserFile {
    /// Makes the state of a new open file, see [`Opened`].
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

    /// Returns the descriptors of this file in the application's table.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.opened.here().into_iter().chain(self.writers.descriptors())
    }
}
