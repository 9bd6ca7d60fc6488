//! The facts about file systems that decide whether a call waits and which credentials it needs.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use nowait_sys::mutex::RwLock;
use nowait_sys::{
    Errno,
    file::{self, Stat},
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The properties of a kind of file system.
#[derive(Debug, Default)]
pub struct FileSystem {
    /// `true`: the file system is in memory. Apart from swap no call waits for a device, so
    /// RWF_NOWAIT is of no use.
    pub in_memory: bool,
    /// `true`: an overwrite of allocated blocks allocates no new ones (ext2, ext3, ext4, tmpfs).
    in_place: bool,
    /// `true`: the file system shows the kernel's state; drivers of its files may know plain calls
    /// only (proc, debugfs, …).
    pub shows_kernel: bool,
    refuses_nowait_writes: AtomicBool,
}

impl FileSystem {
    fn of_kind(kind: Kind) -> FileSystem {
        const TMPFS: u32 = 0x0102_1994;
        const RAMFS: u32 = 0x8584_58f6;
        const HUGETLBFS: u32 = 0x9584_58f6;
        const EXT: u32 = 0xef53;
        const PROC: u32 = 0x9fa0;
        const DEBUGFS: u32 = 0x6462_6720;
        const TRACEFS: u32 = 0x7472_6163;
        const SECURITYFS: u32 = 0x7363_6673;
        let Kind::Magic(magic) = kind else { return FileSystem::default() };
        FileSystem {
            in_memory: matches!(magic, TMPFS | RAMFS | HUGETLBFS),
            in_place: matches!(magic, EXT | TMPFS),
            shows_kernel: matches!(magic, PROC | DEBUGFS | TRACEFS | SECURITYFS),
            refuses_nowait_writes: AtomicBool::default(),
        }
    }

    /// Returns `true` if a buffered write with RWF_NOWAIT is worth trying.
    pub fn may_write_nowait(&self) -> bool {
        !self.refuses_nowait_writes.load(Relaxed)
    }

    /// Returns `true` if a write to `range` of the file with this `stat` can allocate blocks or
    /// change the mode bits. Only then do the credentials of the writing thread matter (reserved
    /// blocks, quota, set-id bits).
    pub fn credentials_matter(&self, stat: &Stat, range: &Range<u64>) -> bool {
        const SET_ID: u32 = 0o6000;
        let allocated = range.end <= stat.size as u64 && !stat.may_have_holes();
        !(self.in_place && allocated && stat.mode & SET_ID == 0)
    }

    /// Records that the file system refuses buffered writes with RWF_NOWAIT (`EOPNOTSUPP`), as ext4
    /// does.
    pub fn refuses_nowait_writes(&self) {
        self.refuses_nowait_writes.store(true, Relaxed);
    }
}

/// The most mounts that are remembered; beyond that, all are forgotten and looked up again.
const MOUNTS_MAX: usize = 256;

/// The file systems seen so far.
#[derive(Debug, Default)]
pub struct FileSystems(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By the magic number of the file system's kind: the facts follow from the kind, or are hints.
    kinds: FxHashMap<Kind, Arc<FileSystem>>,
    /// By the number of the mount, on kernels that number mounts. Device numbers would not do:
    /// those of file systems without a device are reused after umount(2).
    mounts: FxHashMap<u64, Arc<FileSystem>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A block device: its node is on another file system than its data.
    BlockDevice,
    Magic(u32),
}

impl FileSystems {
    /// Returns the known facts about the file system of `fd`, whose stat is `stat`.
    ///
    /// # Errors
    /// The errors of fstatfs(2), which is called again for a known mount only on kernels that do
    /// not number mounts.
    pub fn of(&self, stat: &Stat, fd: i32) -> Result<Arc<FileSystem>, Errno> {
        if stat.is_block_device() {
            return Ok(self.of_kind(Kind::BlockDevice));
        }
        let known = |mount| self.0.read().mounts.get(&mount).cloned();
        if let Some(known) = stat.mount.and_then(known) {
            return Ok(known);
        }
        let found = self.of_kind(Kind::Magic(file::filesystem_magic(fd)?));
        if let Some(mount) = stat.mount {
            let mounts = &mut self.0.write().mounts;
            if mounts.len() >= MOUNTS_MAX {
                mounts.clear();
            }
            mounts.insert(mount, found.clone());
        }
        Ok(found)
    }

    fn of_kind(&self, kind: Kind) -> Arc<FileSystem> {
        if let Some(known) = self.0.read().kinds.get(&kind) {
            return known.clone();
        }
        let made = Arc::new(FileSystem::of_kind(kind));
        self.0.write().kinds.entry(kind).or_insert(made).clone()
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
        let folder = File::open("/dev").unwrap();
        let stat = file::stat(folder.as_raw_fd()).unwrap();
        assert!(systems.of(&stat, folder.as_raw_fd()).unwrap().in_memory);
    }
    /// The kernel may give the device number of an unmounted file system to the next one.
    #[test]
    fn a_device_number_says_nothing_about_a_file_system() {
        let systems = FileSystems::default();
        let in_memory = tempfile::tempfile_in("/dev/shm").unwrap();
        let (stat, fd) = (file::stat(in_memory.as_raw_fd()).unwrap(), in_memory.as_raw_fd());
        assert!(systems.of(&stat, fd).unwrap().in_memory);
        let on_a_device = File::open("/proc/self/exe").unwrap();
        let fd = on_a_device.as_raw_fd();
        let other = Stat { dev: stat.dev, ..file::stat(fd).unwrap() };
        assert!(!systems.of(&other, fd).unwrap().in_memory);
        let other = Stat { mount: None, ..other };
        assert!(!systems.of(&other, fd).unwrap().in_memory);
        assert!(
            systems.of(&Stat { mount: None, ..stat }, in_memory.as_raw_fd()).unwrap().in_memory
        );
    }
}
