//! The cache: the frames, nodes, wait queues and list of mappings that its files share.

use crate::file::CachedFile;
use crate::folio::FolioId;
use crate::frames::Frames;
use crate::io::IoTable;
use crate::mapping::Mapping;
use crate::nodes::Nodes;
use crate::page_wait::{PageWaits, WaitCounts};
use crate::pin::Pin;
use crate::policy::S3Fifo;
use crate::primitives::{Arc, AtomicU64, Mutex, Relaxed};
use crate::room::Room;
use crate::share::{Devices, Dirt, InFlightMax};
use nowait_sys::Errno;
use std::sync::Weak;

/// A page cache of a fixed size.
#[derive(Debug)]
pub struct Cache {
    pub(crate) frames: Frames,
    pub(crate) nodes: Nodes,
    pub(crate) waits: PageWaits,
    pub(crate) dirt: Dirt,
    pub(crate) devices: Devices,
    mappings: Mutex<Registry>,
    pub(crate) progress: Room,
    pub(crate) ios: Mutex<IoTable>,
    pub(crate) files: Mutex<Vec<Weak<CachedFile>>>,
    /// Knows the folios in a tree by the numbers of their first frames, except while a thread adds,
    /// removes or evicts a folio.
    pub(crate) policy: Mutex<S3Fifo>,
    pub(crate) pages_read: AtomicU64,
    pub(crate) pages_written: AtomicU64,
    pub(crate) flushes: AtomicU64,
    reads_cached: AtomicU64,
    reads_missed: AtomicU64,
}

/// Counts of reads, and of the cache's I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Pages that the cache asked devices to read, readahead included.
    pub pages_read: u64,
    /// Pages that devices have written.
    pub pages_written: u64,
    /// Flushes that the cache has started.
    pub flushes: u64,
    /// Counted attempts at reads ([`Cache::count_reads`]) that found all of their pages in the
    /// cache.
    pub reads_cached: u64,
    /// Counted attempts at reads that met a page that was missing, not uptodate or marked for
    /// readahead.
    pub reads_missed: u64,
}

#[derive(Debug, Default)]
struct Registry {
    mappings: Vec<Option<Weak<Mapping>>>,
    vacant: Vec<u32>,
}

impl Cache {
    /// Makes a cache of `bytes`, rounded up to a multiple of 2 MiB. The system provides the memory
    /// when the cache first touches it.
    ///
    /// # Errors
    /// `ENOMEM`: no memory or address space. `EINVAL`: zero, or 16 TiB and more.
    pub fn new(bytes: u64) -> Result<Arc<Cache>, Errno> {
        Ok(Cache::over(Frames::new(bytes)?))
    }

    /// Makes a cache of `frames` frames, for tests and simulations of caches that soon run out of
    /// frames.
    ///
    /// # Panics
    /// The system has no memory for it.
    pub fn with_frames(frames: u32) -> Arc<Cache> {
        Cache::over(Frames::with_frames(frames).expect("memory for a test"))
    }

    fn over(frames: Frames) -> Arc<Cache> {
        Arc::new(Cache {
            nodes: Nodes::new(frames.total()),
            policy: Mutex::new(S3Fifo::new(frames.total(), frames.total())),
            frames,
            waits: PageWaits::new(),
            dirt: Dirt::default(),
            devices: Devices::default(),
            mappings: Mutex::new(Registry::default()),
            progress: Room::default(),
            ios: Mutex::new(IoTable::new()),
            files: Mutex::new(Vec::new()),
            pages_read: AtomicU64::new(0),
            pages_written: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            reads_cached: AtomicU64::new(0),
            reads_missed: AtomicU64::new(0),
        })
    }

    /// Limits the bios of each kind in flight on each device; further bios wait. Called by the
    /// maker of the cache.
    pub fn limit_in_flight(&self, most: InFlightMax) {
        self.ios.lock().most = most;
    }

    /// Returns the pool of frames.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Returns the counts of wait entries for folios.
    pub fn wait_counts(&self) -> WaitCounts {
        self.waits.counts()
    }

    /// Returns the counts of reads and of I/O.
    pub fn io_counts(&self) -> IoCounts {
        IoCounts {
            pages_read: self.pages_read.load(Relaxed),
            pages_written: self.pages_written.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            reads_cached: self.reads_cached.load(Relaxed),
            reads_missed: self.reads_missed.load(Relaxed),
        }
    }

    /// Counts reads that found all of their pages cached, and reads that missed a page. All threads
    /// share the counters, so the caller should add several reads together.
    pub fn count_reads(&self, cached: u64, missed: u64) {
        self.reads_cached.fetch_add(cached, Relaxed);
        self.reads_missed.fetch_add(missed, Relaxed);
    }

    /// Returns the number of nodes in the trees of all mappings.
    pub fn tree_nodes(&self) -> usize {
        self.nodes.in_use()
    }

    /// Returns the number of frames that are dirty or under writeback.
    pub fn dirty_frames(&self) -> u64 {
        self.dirt.dirty()
    }

    /// Returns the number of dirty frames, less those under writeback and less those that have
    /// failed. A frame of both kinds is subtracted twice.
    pub fn unwritten_frames(&self) -> u64 {
        let under_way = self.dirt.writing() + self.dirt.failed();
        self.dirt.dirty().saturating_sub(under_way)
    }

    /// Returns the mapping with this number, if it still exists.
    pub fn mapping(&self, number: u32) -> Option<Arc<Mapping>> {
        let at = (number as usize).checked_sub(1)?;
        self.mappings.lock().mappings.get(at)?.as_ref()?.upgrade()
    }

    pub(crate) fn register(&self, make: impl FnOnce(u32) -> Arc<Mapping>) -> Arc<Mapping> {
        let mut registry = self.mappings.lock();
        let number = registry.vacant.pop().unwrap_or_else(|| {
            registry.mappings.push(None);
            registry.mappings.len() as u32
        });
        let mapping = make(number);
        registry.mappings[number as usize - 1] = Some(Arc::downgrade(&mapping));
        mapping
    }

    pub(crate) fn unregister(&self, number: u32) {
        let mut registry = self.mappings.lock();
        registry.mappings[number as usize - 1] = None;
        registry.vacant.push(number);
    }

    /// Evicts a folio and frees it. Returns `false` if the folio is pinned, locked, dirty, under
    /// writeback or in no tree. The caller holds no lock of the cache.
    pub fn evict(&self, id: FolioId) -> bool {
        if self.frames.folio(id).try_hold().is_none() {
            return false;
        }
        let pin = Pin::adopt(&self.frames, id);
        let Some(mapping) = self.mapping(pin.folio().mapping()) else { return false };
        mapping.evict(pin)
    }
}
