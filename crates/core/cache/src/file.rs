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
    /// Where the number is only known to the thread that does the work: overrides `fd`.
    pub file: Option<Arc<dyn Descriptor>>,
}

/// How a cache reaches a file.
#[derive(Clone, Debug)]
pub struct Backing {
    /// The file that reads and flushes use, opened with O_DIRECT.
    pub reads: Target,
    /// The file that writes use; `None`: [`CachedFile::write_by`] will set it.
    pub writes: Option<Writes>,
    /// The number that identifies the file's device.
    pub device: u64,
    /// Alignment that direct requests need, in bytes; a power of two, at most 4096.
    pub block_bytes: u32,
}

/// The opens that a cache needs to write a file.
///
/// Whole blocks go past the kernel's cache. The last block, as far as it is not whole, is written
/// by the other open in its exact length: the file is never longer than its logical size, also
/// after a crash. (To write the whole block and cut the file after that would show a longer file
/// in between.) The kernel keeps the two coherent, and a sync of any open covers all.
#[derive(Clone, Debug)]
pub struct Writes {
    /// Opened with O_DIRECT.
    pub direct: Target,
    /// Opened without, for the tail; the same as `direct` where any length can be written.
    pub tail: Target,
}

impl Backing {
    /// Makes one in which everything goes by the same open, of a file on the device 0.
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
    /// The logical size, in bytes: what was written, on disk or not.
    size: AtomicU64,
    /// Bytes that are known to be in the file: at open, and written since.
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

    /// Returns its pages.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns the cache it is in.
    pub fn cache(&self) -> &Arc<Cache> {
        self.mapping.cache()
    }

    /// Returns the open for reads and flushes.
    pub fn reads(&self) -> &Target {
        &self.reads
    }

    /// Returns the opens for writes.
    pub fn writes(&self) -> Option<Writes> {
        self.writes.lock().clone()
    }

    /// Makes `writes` write the file from now on, before any of its pages is dirty; `None` when no
    /// page is dirty. Returns the previous value.
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

    /// Returns how many bytes are known to be in the file: behind them are zeroes.
    pub fn disk_size(&self) -> u64 {
        self.disk_size.load(Acquire)
    }

    /// Makes the file at least `size` bytes long. Reads there return zeroes.
    pub(crate) fn grow(&self, size: u64) {
        // Mostly it is as long already: a look shares what a locked instruction would take away,
        // and does not wait for the bytes just copied to reach the cache.
        if self.size.load(Acquire) < size {
            self.size.fetch_max(size, AcqRel);
        }
    }

    /// Notes that the file has been written up to byte `end`.
    pub(crate) fn grown_on_disk(&self, end: u64) {
        self.disk_size.fetch_max(end, AcqRel);
    }

    /// Reads folios that the caller has locked, in ascending order: one bio for each run of
    /// adjoining ones. Bytes behind the end of the file need none: they are zero.
    pub fn fill(self: &Arc<Self>, ids: &[FolioId], plug: &mut Vec<Bio>) {
        let mut woken = Vec::new();
        self.cache().runs(ids, |run| self.cache().start_fill(self, run, plug, &mut woken));
        woken.into_iter().for_each(WaitEntry::kick);
    }

    /// Writes the dirty pages of folios whose writeback the caller has started: one adjoining run.
    pub fn write_back(self: &Arc<Self>, run: &[FolioId], plug: &mut Vec<Bio>) {
        self.write_back_to(SyncLevel::WriteOnly, run, plug);
    }

    /// Like [`CachedFile::write_back`]; `durable` says how durable the data is when the writeback
    /// ends.
    pub(crate) fn write_back_to(
        self: &Arc<Self>,
        durable: SyncLevel,
        run: &[FolioId],
        plug: &mut Vec<Bio>,
    ) {
        self.cache().start_write(self, run, durable, plug);
    }

    /// Notes that the file was written up to byte `end` past the cache: it is at least as long. A
    /// direct write calls it before it unlocks its range.
    pub fn written_past(&self, end: u64) {
        self.grown_on_disk(end);
        self.grow(end);
    }

    /// Sets the size, in the cache and of the file, which nothing else changes meanwhile.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Release);
        self.disk_size.store(size, Release);
    }

    /// Returns `true` if a page of the file is dirty or under writeback.
    pub fn is_dirty(&self) -> bool {
        self.mapping.has_dirt()
    }

    /// Returns why something that was written may be lost, or is: a flush of the device failed, or
    /// what could not be written was dropped. Syncs report it.
    pub fn lost(&self) -> Option<Errno> {
        self.flush.lost_by()
    }

    /// Forgets that a flush of the device failed: syncs report it until then, because what was
    /// written before it may be lost. An owner calls it when it has written the file anew, or gives
    /// the file up.
    pub fn forgive(&self) {
        self.flush.forgive();
    }
}
