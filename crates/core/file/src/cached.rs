//! Files in the engine's own page cache, which bypass the kernel's page cache.
//!
//! All open files of the process that go through this cache see each other's writes at once. Other
//! processes get close-to-open consistency: an open drops cached pages if the file has changed
//! since they were read, and a sync or the last close writes dirty pages.

mod dirty;
pub mod exclusion;
mod file;
mod handle;
mod inode_marks;
pub(crate) mod kernel_writes;
mod open;
mod opening;
mod operation;
mod writers;

use crate::{Context, Engine, engine::devices::in_flight_max, order::InodeKey};
pub(crate) use dirty::DirtyFiles;
pub use exclusion::Exclusion;
pub use file::{Opened, UserFile};
pub use handle::UserHandle;
use inode_marks::InodeMarks;
use kernel_writes::{KernelWrite, KernelWrites};
use nowait_block::Bio;
use nowait_cache::{Cache, cache::IoCounts};
use nowait_sys::{
    Errno,
    file::stat,
    lazy::Lazy,
    mutex::{Mutex, MutexGuard},
};
use opening::Opening;
pub use operation::UserOperation;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};
pub use writers::Writer;

type Files<'a> = MutexGuard<'a, FxHashMap<InodeKey, Entry>>;

#[derive(Debug)]
enum Entry {
    /// A file that was opened, and may have been dropped since.
    Open(Weak<UserFile>),
    Opening(Arc<Opening>),
}

impl Entry {
    fn file(&self) -> Option<Arc<UserFile>> {
        match self {
            Entry::Open(file) => file.upgrade(),
            Entry::Opening(_) => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct CachedFiles {
    cache: Lazy<Arc<Cache>>,
    /// Submitters take this lock, so no thread holds it across a call that may wait.
    files: Mutex<FxHashMap<InodeKey, Entry>>,
    /// Most programs open no user file: then no look-up takes the lock.
    marks: Arc<InodeMarks>,
    pub(crate) writes: KernelWrites,
    pub(crate) dirty: Arc<DirtyFiles>,
    /// The number of opens of each inode, in any cache mode.
    opens: Mutex<FxHashMap<InodeKey, usize>>,
}

impl CachedFiles {
    pub(crate) fn cache(&self) -> Option<&Arc<Cache>> {
        self.cache.get()
    }

    /// Queues the writeback of all user files in `bios`, and releases the files without dirty data.
    /// Returns `true` if the engine still keeps dirty files.
    pub(crate) fn clean(&self, bios: &mut Vec<Bio>) -> bool {
        if let Some(cache) = self.cache() {
            cache.clean(u64::MAX, bios);
        }
        self.dirty.tidy()
    }

    /// Counts a write to the inode that goes to the kernel, until the guard is dropped. Returns the
    /// inode's user file as the error: then the write must go through that file.
    pub(crate) fn begin_write(&self, key: InodeKey) -> Result<KernelWrite<'_>, Arc<UserFile>> {
        let write = self.writes.enter(key);
        let open = if self.marks.may_have(key) { self.for_write(key) } else { None };
        match open {
            Some(file) => Err(file),
            None => Ok(write),
        }
    }

    /// Counts a write to a file whose inode was not looked up, until the guard is dropped. Returns
    /// `None` if any user file exists: the inode may be that file's.
    pub(crate) fn begin_unknown(&self, context: &Context) -> Option<KernelWrite<'_>> {
        let write = self.writes.enter_unknown(context);
        (!self.marks.have_any()).then_some(write)
    }

    pub(crate) fn all(&self) -> Vec<Arc<UserFile>> {
        self.files.lock().values().filter_map(Entry::file).collect()
    }

    fn with_key(&self, key: InodeKey) -> Option<Arc<UserFile>> {
        self.files.lock().get(&key).and_then(Entry::file)
    }

    /// Returns the user file that takes a write to this inode. Returns `None` if the write goes to
    /// the kernel; then marks an open in progress as passed.
    fn for_write(&self, key: InodeKey) -> Option<Arc<UserFile>> {
        match self.files.lock().get(&key)? {
            Entry::Open(file) => file.upgrade(),
            Entry::Opening(opening) => {
                opening.pass();
                None
            }
        }
    }
}

impl Engine {
    /// Returns the page cache, made at first use.
    ///
    /// # Errors
    /// `ENOMEM`: there is no memory for the cache now.
    pub fn cache(&self) -> Result<Arc<Cache>, Errno> {
        let make = || {
            let cache = Cache::new(self.config().cache_bytes)?;
            cache.limit_in_flight(in_flight_max(self.queues.limits, self.config().workers_max));
            Ok(cache)
        };
        self.user_files.cache.get_or_make(make).cloned()
    }

    /// Counts an open of the inode `key`, in any cache mode, until [`Engine::count_close`].
    pub fn count_open(&self, key: InodeKey) {
        *self.user_files.opens.lock().entry(key).or_default() += 1;
    }

    /// Ends the count of an open. Returns `true` if no other open of the inode is counted.
    pub fn count_close(&self, key: InodeKey) -> bool {
        let mut opens = self.user_files.opens.lock();
        let Some(count) = opens.get_mut(&key) else { return true };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            opens.remove(&key);
        }
        is_last
    }

    /// Returns the user file of the inode behind `fd`, in whatever cache mode `fd` was opened.
    /// Returns `None`, without a wait, while another thread is opening the file.
    pub fn cached(&self, fd: i32) -> Option<Arc<UserFile>> {
        if !self.user_files.marks.have_any() {
            return None;
        }
        let stat = stat(fd).ok()?;
        self.user_files.with_key((stat.dev, stat.ino))
    }

    /// Runs `change`, which changes the inode `key` without the page cache and does not wait for
    /// the engine; opens of the file in the page cache wait meanwhile. Returns `None`, without a
    /// call of `change`, if the page cache has the file: the caller must change it through the
    /// cache.
    pub fn past_cache<T>(&self, key: InodeKey, change: impl FnOnce() -> T) -> Option<T> {
        let _write = self.user_files.begin_write(key).ok()?;
        Some(change())
    }

    /// Returns the counts of the page cache, if it was made.
    pub fn cache_counts(&self) -> Option<IoCounts> {
        self.user_files.cache().map(|cache| cache.io_counts())
    }

    /// Writes the dirty data of all user files, and waits. A file keeps data that could not be
    /// written.
    pub fn write_back(self: &Arc<Self>) {
        for file in self.user_files.all() {
            let _ = file.settle(self);
        }
    }
}
