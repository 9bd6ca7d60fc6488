//! Files in the engine's own page cache, past the kernel's.
//!
//! Coherent between all opens in the process that go through here. Towards others it is
//! close-to-open: an open looks whether the file has changed, a sync or the last close writes.
//!
//! * `file`: one for each inode: the cached file, and the engine's own descriptor of it
//! * `writers`: who may write it, and what is open for that
//! * `handle`: opens that say their end, and what that does
//! * `operation`: a read, write or sync of it
//! * `open`: an open, which waits for the writes in flight past the cache (`kernel_writes`)
//! * `opening`: opens that are not over, for which other threads wait, or not
//! * [`exclusion`]: what changes a file past its cache
//! * `dirty`: files with something to write
//! * `inode_marks`: which inodes may be cached, told without a lock

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

use crate::{Context, order::InodeKey};
use core::sync::atomic::{AtomicBool, Ordering::Acquire};
pub(crate) use dirty::DirtyFiles;
pub use exclusion::Exclusion;
pub use file::{Opened, UserFile};
pub use handle::UserHandle;
use inode_marks::InodeMarks;
use kernel_writes::{KernelWrite, KernelWrites, UnknownWrite};
use nowait_sys::file::stat;
use nowait_sys::mutex::{Mutex, MutexGuard};
use opening::Opening;
pub use operation::UserOperation;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};
pub use writers::Writer;

/// The user files by inode, locked.
type Files<'a> = MutexGuard<'a, FxHashMap<InodeKey, Entry>>;

/// What there is of an inode.
#[derive(Debug)]
enum Entry {
    /// A file that was open, and perhaps is.
    Open(Weak<UserFile>),
    /// A thread opens it.
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

/// The user files of an engine.
#[derive(Debug, Default)]
pub(crate) struct CachedFiles {
    /// Submitters take this lock: it is held across no call that may wait.
    files: Mutex<FxHashMap<InodeKey, Entry>>,
    /// Whether there ever was one: most programs never look further.
    any: AtomicBool,
    marks: Arc<InodeMarks>,
    pub(crate) writes: KernelWrites,
    pub(crate) dirty: Arc<DirtyFiles>,
    /// How often each inode is open, in whatever mode.
    opens: Mutex<FxHashMap<InodeKey, usize>>,
}

impl CachedFiles {
    /// Counts an open of the inode, in whatever mode.
    pub(crate) fn count_open(&self, key: InodeKey) {
        *self.opens.lock().entry(key).or_default() += 1;
    }

    /// Ends what was counted; true: it was the last one of the inode.
    pub(crate) fn count_close(&self, key: InodeKey) -> bool {
        let mut opens = self.opens.lock();
        let Some(count) = opens.get_mut(&key) else { return true };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            opens.remove(&key);
        }
        is_last
    }

    /// Tells, without a lock, whether an inode may have a user file.
    pub(crate) fn may_have(&self, key: InodeKey) -> bool {
        self.marks.may_have(key)
    }

    /// Tells, without a lock, whether there is a user file.
    pub(crate) fn have_any(&self) -> bool {
        self.marks.have_any()
    }

    /// Returns the user file of the inode behind `fd`, if it is open here.
    pub(crate) fn find(&self, fd: i32) -> Option<Arc<UserFile>> {
        if !self.any.load(Acquire) {
            return None;
        }
        let stat = stat(fd).ok()?;
        self.with_key((stat.dev, stat.ino))
    }

    /// Counts a write to the inode that goes to the kernel, until it ends.
    ///
    /// # Errors
    /// The user file of the inode, which has the write instead.
    pub(crate) fn begin_write(&self, key: InodeKey) -> Result<KernelWrite<'_>, Arc<UserFile>> {
        let write = self.writes.enter(key);
        let open = if self.may_have(key) { self.for_write(key) } else { None };
        match open {
            Some(file) => Err(file),
            None => Ok(write),
        }
    }

    /// The same for a write that is over soon, to an inode that was not looked up. `None`: there
    /// are user files, and it may be one of theirs.
    pub(crate) fn begin_unknown(&self, context: &Context) -> Option<UnknownWrite<'_>> {
        let write = self.writes.enter_unknown(context);
        (!self.have_any()).then_some(write)
    }

    /// Returns all that are open.
    pub(crate) fn all(&self) -> Vec<Arc<UserFile>> {
        self.files.lock().values().filter_map(Entry::file).collect()
    }

    /// Returns the one with this identity, if it is open.
    fn with_key(&self, key: InodeKey) -> Option<Arc<UserFile>> {
        self.files.lock().get(&key).and_then(Entry::file)
    }

    /// The same for a write, which otherwise goes to the kernel, and is counted.
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
