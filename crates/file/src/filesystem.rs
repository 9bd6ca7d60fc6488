//! What file systems can do without waiting.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use nowait_sys::{
    Errno,
    file::{self, Stat},
};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What has been learnt about a mounted file system.
#[derive(Debug, Default)]
pub struct FileSystem {
    /// Lives in memory: nothing waits for a device (swap aside), and nothing is gained by NOWAIT.
    pub in_memory: bool,
    /// Overwriting allocated blocks allocates nothing (ext2, ext3, ext4, tmpfs).
    in_place: bool,
    nowait_write: AtomicU8,
}

const UNSUPPORTED: u8 = 1;

impl FileSystem {
    /// Tells whether trying a buffered write without waiting makes sense.
    pub fn may_write_nowait(&self) -> bool {
        self.nowait_write.load(Relaxed) != UNSUPPORTED
    }

    /// Tells whether a write to `range` of the file with this `stat` can use up blocks or change
    /// the mode bits: only then it matters with whose rights it is done (reserved blocks, quota,
    /// set-id bits).
    pub fn rights_matter(&self, stat: &Stat, range: &Range<u64>) -> bool {
        const SET_ID: u32 = 0o6000;
        let allocated = range.end <= stat.size as u64 && !stat.may_have_holes();
        !(self.in_place && allocated && stat.mode & SET_ID == 0)
    }

    /// Notes that the file system refuses such writes (`EOPNOTSUPP`), as ext4 does.
    pub fn refuses_nowait_writes(&self) {
        self.nowait_write.store(UNSUPPORTED, Relaxed);
    }
}

/// What stands for all block devices among the device numbers, which have 32 bits.
const BLOCK_DEVICES: u64 = u64::MAX;

/// The file systems met so far, by device number.
#[derive(Debug, Default)]
pub struct FileSystems(RwLock<FxHashMap<u64, Arc<FileSystem>>>);

impl FileSystems {
    /// Returns what is known about the file system of `fd`, which has this `stat`.
    ///
    /// # Errors
    /// Those of fstatfs(2), the first time.
    pub fn of(&self, stat: &Stat, fd: i32) -> Result<Arc<FileSystem>, Errno> {
        // The node of a block device is in memory, in /dev; its data is not.
        let is_device = stat.is_block_device();
        let dev = if is_device { BLOCK_DEVICES } else { stat.dev };
        if let Some(known) = self.0.read().get(&dev) {
            return Ok(known.clone());
        }
        const TMPFS: u32 = 0x0102_1994;
        const RAMFS: u32 = 0x8584_58f6;
        const HUGETLBFS: u32 = 0x9584_58f6;
        const EXT: u32 = 0xef53;
        let magic = file::filesystem_magic(fd)?;
        let found = Arc::new(FileSystem {
            in_memory: !is_device && matches!(magic, TMPFS | RAMFS | HUGETLBFS),
            in_place: !is_device && matches!(magic, EXT | TMPFS),
            nowait_write: AtomicU8::default(),
        });
        Ok(self.0.write().entry(dev).or_insert(found).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::{self, File},
        os::{fd::AsRawFd, unix::fs::FileTypeExt},
    };

    #[test]
    fn a_block_device_is_not_in_memory_though_its_node_is() {
        let nodes = fs::read_dir("/dev").unwrap().flatten();
        let is_device = |node: &fs::DirEntry| node.file_type().is_ok_and(|it| it.is_block_device());
        let Some(device) = nodes.filter(is_device).find_map(|it| File::open(it.path()).ok()) else {
            return println!("skipped: device: no block device in /dev can be opened");
        };
        let stat = file::stat(device.as_raw_fd()).unwrap();
        let systems = FileSystems::default();
        assert!(!systems.of(&stat, device.as_raw_fd()).unwrap().in_memory);
        // The device number of /dev says nothing about devices, nor they about it.
        let folder = File::open("/dev").unwrap();
        let stat = file::stat(folder.as_raw_fd()).unwrap();
        assert!(systems.of(&stat, folder.as_raw_fd()).unwrap().in_memory);
    }
}
