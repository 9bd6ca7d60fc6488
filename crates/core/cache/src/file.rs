//! A cached file: its mapping, its sizes, and the way of bios to it.

use crate::cache::Cache;
use crate::flush::{Flush, SyncLevel};
use crate::folio::FolioId;
use crate::mapping::Mapping;
use crate::primitives::{AcqRel, Acquire, Arc, AtomicU64, Mutex, Release};
use nowait_block::{Bio, bio::Descriptor};
use nowait_retry::WaitEntry;
use nowait_sys::Errno;

/// An open file as a bio names it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The number, in the table of the thread that commits.
    pub fd: i32,
    /// Set if only the thread that does the work knows the number; overrides `fd`.
    pub file: Option<Arc<dyn Descriptor>>,
}

/// How a cache reaches a file.
#[derive(Clone, Debug)]
pub struct Backing {
    /// The file that reads and flushes use, opened with O_DIRECT if it takes direct requests of a
    /// single frame.
    pub reads: Target,
    /// The file that writes use; `None`: [`CachedFile::write_by`] will set it.
    pub writes: Option<Writes>,
    /// The number that identifies the file's device.
    pub device: u64,
    /// Alignment that direct requests need, in bytes; a power of two, at most 4096.
    pub block_bytes: u32,
}

/// The open files through which a cache writes a file.
///
/// Whole blocks bypass the kernel's page cache if the file takes direct requests of a single frame.
/// A last block that is not whole is written through the other open file with its exact length, so
/// that the file is never longer than its logical size, also after a crash. (Writing the whole
/// block and then truncating the file would show a longer file in between.) The kernel keeps both
/// coherent, and a sync of either covers all writes.
#[derive(Clone, Debug)]
pub struct Writes {
    /// For whole blocks, opened with O_DIRECT if the file takes such requests.
    pub direct: Target,
    /// Opened without O_DIRECT, for the tail; the same as `direct` if that can write any length.
    pub tail: Target,
}

impl Backing {
    /// Makes a backing that reads, writes and flushes through `target`, of a file on device 0.
    pub fn of(target: &Target) -> Backing {
        let writes = Some(Writes { direct: target.clone(), tail: target.clone() });
        let block_bytes = crate::FRAME_BYTES as u32;
        Backing { reads: target.clone(), writes, device: 0, block_bytes }
    }
}

/// A file in a cache, shared by all its opens.
#[derive(Debug)]
pub struct CachedFile {
    mapping: Arc<Mapping>,
    reads: Target,
    writes: Mutex<Option<Writes>>,
    block_bytes: u32,
    /// The logical size in bytes. It includes bytes that are not on disk yet.
    size: AtomicU64,
    /// The bytes that the file on disk is known to have: its size at open, or the end of later
    /// writes.
    disk_size: AtomicU64,
    pub(crate) flush: Flush,
}

impl CachedFile {
    /// Makes a cached file of `size` bytes.
    pub fn new(cache: &Arc<Cache>, backing: Backing, size: u64) -> Arc<CachedFile> {
        let Backing { reads, writes, device, block_bytes } = backing;
        let file = Arc::new(CachedFile {
            mapping: Mapping::on_device(cache, device),
            reads,
            writes: Mutex::new(writes),
            block_bytes,
            size: AtomicU64::new(size),
            disk_size: AtomicU64::new(size),
            flush: Flush::default(),
        });
        cache.enlist(&file);
        file
    }

    /// Returns the mapping, which has the file's pages.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns the cache that has the file.
    pub fn cache(&self) -> &Arc<Cache> {
        self.mapping.cache()
    }

    /// Returns the open file for reads and flushes.
    pub fn reads(&self) -> &Target {
        &self.reads
    }

    /// Returns the open files for writes.
    pub fn writes(&self) -> Option<Writes> {
        self.writes.lock().clone()
    }

    /// Sets the open files for writes, before any page of the file is dirty; `None` only when no
    /// page is dirty. Returns the previous ones.
    pub fn write_by(&self, writes: Option<Writes>) -> Option<Writes> {
        core::mem::replace(&mut *self.writes.lock(), writes)
    }

    /// Returns the alignment of direct requests, in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Returns the logical size in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Acquire)
    }

    /// Returns how many bytes the file on disk is known to have; the bytes after them are zeroes.
    pub fn disk_size(&self) -> u64 {
        self.disk_size.load(Acquire)
    }

    /// Makes the file at least `size` bytes long. Reads there return zeroes.
    pub(crate) fn grow(&self, size: u64) {
        // Mostly the file is as long already. A plain load leaves the cache line shared with other
        // processors, and does not wait until the bytes just copied are stored, as an atomic change
        // would.
        if self.size.load(Acquire) < size {
            self.size.fetch_max(size, AcqRel);
        }
    }

    /// Records that the file on disk has been written up to byte `end`.
    pub(crate) fn grown_on_disk(&self, end: u64) {
        self.disk_size.fetch_max(end, AcqRel);
    }

    /// Reads folios that the caller has locked, in ascending order, with one bio for each run of
    /// adjoining folios. Bytes behind the end of the file need no bio: they are zero.
    pub fn fill(self: &Arc<Self>, ids: &[FolioId], plug: &mut Vec<Bio>) {
        let mut woken = Vec::new();
        self.cache().runs(ids, |run| self.cache().start_fill(self, run, plug, &mut woken));
        woken.into_iter().for_each(WaitEntry::wake);
    }

    /// Writes the dirty pages of `run`, a run of adjoining folios whose writeback the caller has
    /// started.
    pub fn write_back(self: &Arc<Self>, run: &[FolioId], plug: &mut Vec<Bio>) {
        self.write_back_to(SyncLevel::WriteOnly, run, plug);
    }

    /// Like [`CachedFile::write_back`]; `durable` is how durable the data must be when the
    /// writeback ends.
    pub(crate) fn write_back_to(
        self: &Arc<Self>,
        durable: SyncLevel,
        run: &[FolioId],
        plug: &mut Vec<Bio>,
    ) {
        self.cache().start_write(self, run, durable, plug);
    }

    /// Records that a write which bypassed the cache has written up to byte `end`: the file is at
    /// least so long. A direct write calls it before it unlocks its range.
    pub fn written_past(&self, end: u64) {
        self.grown_on_disk(end);
        self.grow(end);
    }

    /// Sets the logical size and the size on disk. Nothing else changes them meanwhile.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Release);
        self.disk_size.store(size, Release);
    }

    /// Returns `true` if a page of the file is dirty or under writeback.
    pub fn is_dirty(&self) -> bool {
        self.mapping.has_dirt()
    }

    /// Returns the error by which written data may be lost, or is lost: a flush of the device
    /// failed, or the cache dropped data that it could not write. Each sync returns this error.
    pub fn lost(&self) -> Option<Errno> {
        self.flush.lost_by()
    }

    /// Forgets the error that [`CachedFile::lost`] returns. Until then each sync fails, because
    /// data may be lost. The owner of the file calls it after it has written the file anew, or has
    /// given it up.
    pub fn forgive(&self) {
        self.flush.forgive();
    }
}
