//! A cached file: its mapping, its sizes, and the open files through which bios reach it.

use crate::cache::Cache;
use crate::flush::{Flush, SyncLevel};
use crate::folio::FolioId;
use crate::mapping::Mapping;
use crate::primitives::{AcqRel, Acquire, Arc, AtomicU64, Mutex, Release};
use nowait_block::{Bio, bio::Descriptor};
use nowait_retry::WaitEntry;
use nowait_sys::Errno;

/// An open file, as a bio names it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Valid in the descriptor table of the thread that commits the bio.
    pub fd: i32,
    /// Overrides `fd`, if only the thread that carries out the bio knows the number.
    pub file: Option<Arc<dyn Descriptor>>,
}

/// How a cache reaches a file.
#[derive(Clone, Debug)]
pub struct Backing {
    /// For reads and flushes; opened with O_DIRECT if the file takes direct requests of a single
    /// frame.
    pub reads: Target,
    /// For writes; `None`: the owner will set them by [`CachedFile::write_by`].
    pub writes: Option<Writes>,
    /// The number of the file's device.
    pub device: u64,
    /// Alignment of direct requests in bytes: a power of two, at most 4096.
    pub block_bytes: u32,
}

/// The open files through which a cache writes a file.
///
/// Whole blocks bypass the kernel's page cache if possible. The cache writes a last block that is
/// not whole through the other open file, with its exact length: so the file is never longer than
/// its logical size, even after a crash. The kernel keeps both open files coherent, and a sync of
/// either covers all writes.
#[derive(Clone, Debug)]
pub struct Writes {
    /// For whole blocks; opened with O_DIRECT if the file takes such requests.
    pub direct: Target,
    /// For the tail, opened without O_DIRECT; the same as `direct` if that can write any length.
    pub tail: Target,
}

impl Backing {
    /// Makes a backing for a file on device 0, which reads, writes and flushes through `target`.
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
    /// The logical size in bytes, which may include bytes that are not on disk yet.
    size: AtomicU64,
    /// The size of the file on disk, as far as the cache knows.
    disk_size: AtomicU64,
    pub(crate) flush: Flush,
}

impl CachedFile {
    /// Makes a cached file of `size` bytes, and adds it to the files of the cache.
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

    /// Returns the file's mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns the file's cache.
    pub fn cache(&self) -> &Arc<Cache> {
        self.mapping.cache()
    }

    /// Returns the open file for reads and flushes.
    pub fn reads(&self) -> &Target {
        &self.reads
    }

    /// Returns the open files for writes; `None` if the owner has not set them.
    pub fn writes(&self) -> Option<Writes> {
        self.writes.lock().clone()
    }

    /// Sets or removes the open files for writes, and returns the previous ones. The owner sets
    /// them before any page is dirty, and removes them only while no page is dirty.
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

    /// Returns the known size of the file on disk. The cache takes bytes after it as zeroes.
    pub fn disk_size(&self) -> u64 {
        self.disk_size.load(Acquire)
    }

    /// Raises a logical size below `size` to `size`. Bytes that no write has set are zeroes.
    pub(crate) fn grow(&self, size: u64) {
        // Usually the file is as long already. A plain load leaves the cache line shared with other
        // processors, and does not wait until the bytes just copied are stored.
        if self.size.load(Acquire) < size {
            self.size.fetch_max(size, AcqRel);
        }
    }

    pub(crate) fn grown_on_disk(&self, end: u64) {
        self.disk_size.fetch_max(end, AcqRel);
    }

    /// Starts reading folios that the caller has locked, in ascending order. Puts the bios on
    /// `plug`, except those beyond the device's limit, which wait. A run of folios behind the end
    /// of the file on disk needs no bio.
    pub fn fill(self: &Arc<Self>, ids: &[FolioId], plug: &mut Vec<Bio>) {
        let mut woken = Vec::new();
        self.cache().runs(ids, |run| self.cache().start_fill(self, run, plug, &mut woken));
        woken.into_iter().for_each(WaitEntry::wake);
    }

    /// Starts writing the dirty pages of `run`. Puts the bios on `plug`, except those beyond the
    /// device's limit, which wait. The folios adjoin, and the caller has started their writeback.
    pub fn write_back(self: &Arc<Self>, run: &[FolioId], plug: &mut Vec<Bio>) {
        self.write_back_to(SyncLevel::WriteOnly, run, plug);
    }

    pub(crate) fn write_back_to(
        self: &Arc<Self>,
        durable: SyncLevel,
        run: &[FolioId],
        plug: &mut Vec<Bio>,
    ) {
        self.cache().start_write(self, run, durable, plug);
    }

    /// Records that a write which bypassed the cache has written up to byte `end`. The caller still
    /// keeps other requests out of the write's range.
    pub fn written_past(&self, end: u64) {
        self.grown_on_disk(end);
        self.grow(end);
    }

    /// Sets the logical size and the size on disk. No operation may change either size meanwhile.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Release);
        self.disk_size.store(size, Release);
    }

    /// Returns `true` if a page of the file is dirty or under writeback.
    pub fn is_dirty(&self) -> bool {
        self.mapping.has_dirt()
    }

    /// Returns the error because of which written data may be lost: a flush or a durable write
    /// failed, or the cache dropped data that it could not write. A sync that ends with a flush
    /// returns this error.
    pub fn lost(&self) -> Option<Errno> {
        self.flush.lost_by()
    }

    /// Forgets the error of [`CachedFile::lost`]. The owner may call this after it has written the
    /// file anew, or has given the file up.
    pub fn forgive(&self) {
        self.flush.forgive();
    }
}
