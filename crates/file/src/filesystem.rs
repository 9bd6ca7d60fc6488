//! What file systems can do without waiting.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use nowait_sys::{Errno, file};
use parking_lot::RwLock;
use std::{collections::HashMap, sync::Arc};

/// What has been learnt about a mounted file system.
#[derive(Debug, Default)]
pub struct FileSystem {
    /// Lives in memory: nothing waits for a device (swap aside), and nothing is gained by NOWAIT.
    pub in_memory: bool,
    nowait_write: AtomicU8,
}

const UNSUPPORTED: u8 = 1;

impl FileSystem {
    /// Tells whether trying a buffered write without waiting makes sense.
    pub fn may_write_nowait(&self) -> bool {
        self.nowait_write.load(Relaxed) != UNSUPPORTED
    }

    /// Notes that the file system refuses such writes (`EOPNOTSUPP`), as ext4 does.
    pub fn refuses_nowait_writes(&self) {
        self.nowait_write.store(UNSUPPORTED, Relaxed);
    }
}

/// The file systems met so far, by device number.
#[derive(Debug, Default)]
pub struct FileSystems(RwLock<HashMap<u64, Arc<FileSystem>>>);

impl FileSystems {
    /// Returns what is known about the file system `dev`, on which `fd` is open.
    ///
    /// # Errors
    /// Those of fstatfs(2), the first time.
    pub fn of(&self, dev: u64, fd: i32) -> Result<Arc<FileSystem>, Errno> {
        if let Some(known) = self.0.read().get(&dev) {
            return Ok(known.clone());
        }
        const TMPFS: u32 = 0x0102_1994;
        const RAMFS: u32 = 0x8584_58f6;
        const HUGETLBFS: u32 = 0x9584_58f6;
        let in_memory = matches!(file::filesystem_magic(fd)?, TMPFS | RAMFS | HUGETLBFS);
        let found = Arc::new(FileSystem { in_memory, ..FileSystem::default() });
        Ok(self.0.write().entry(dev).or_insert(found).clone())
    }
}
