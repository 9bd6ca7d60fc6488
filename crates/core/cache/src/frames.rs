//! The memory of a cache: a pool of frames of 4 KiB, in huge pages if possible, and the headers of
//! the frames.

use crate::buddy::{Buddy, FRAME_BYTES, ORDER_MAX};
use crate::folio::{Folio, FolioId};
use crate::primitives::{AtomicU64, Mutex, Relaxed};
use crate::room::Room;
use nowait_retry::WaitEntry;
use nowait_sys::{
    Errno,
    memory::{HUGE_PAGE_SIZE, HugeMemory, huge_vec, prefetch},
};

/// How the caller will read the bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The caller copies all bytes in order. The pool prefetches the first 512 bytes, because the
    /// processor's own prefetcher follows a stream only after the first cache lines have missed.
    Copy,
    /// The caller reads the bytes in place, in any order. The pool prefetches the first two cache
    /// lines and the last one, which often hold a header and a trailer.
    Look,
}

const COPY_AHEAD_BYTES: usize = 512;
const LOOK_AHEAD_BYTES: usize = 128;
const CACHE_LINE: usize = 64;

/// The error of an allocation: no frame is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFrames;

/// Counts of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameCounts {
    /// All frames of the pool.
    pub total: u64,
    /// Frames that belong to no folio.
    pub free: u64,
    /// Number of 256 KiB blocks whose largest free run has 2^i frames, for each i (fragmentation).
    pub blocks_by_largest: [u32; ORDER_MAX as usize + 1],
    /// Allocations that got a smaller run, because no run of the wanted size was free.
    pub smaller: u64,
    /// Allocations for which no frame was free.
    pub failed: u64,
}

/// A pool of frames, fixed in size, with a header for each frame.
///
/// Threads allocate, free and count frames under the pool's lock. The pool computes addresses only;
/// an operation may access a folio's memory by the rules of [`crate::folio`].
#[derive(Debug)]
pub struct Frames {
    memory: HugeMemory,
    total: u32,
    /// In the order of [`Frames::place`].
    folios: Box<[Folio]>,
    buddy: Mutex<Buddy>,
    room: Room,
    smaller: AtomicU64,
    failed: AtomicU64,
}

impl Frames {
    /// Maps a pool of `bytes`, rounded up to a multiple of 2 MiB.
    ///
    /// # Errors
    /// `ENOMEM`: no memory or address space. `EINVAL`: zero, or 16 TiB and more.
    pub fn new(bytes: u64) -> Result<Frames, Errno> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE_SIZE as u64);
        match u32::try_from(bytes / FRAME_BYTES as u64) {
            Ok(frames) if frames > 0 && frames < u32::MAX => Frames::with_frames(frames),
            _ => Err(Errno::INVAL),
        }
    }

    pub(crate) fn with_frames(frames: u32) -> Result<Frames, Errno> {
        let bytes = frames as usize * FRAME_BYTES;
        let headers = frames.next_multiple_of(1 << ORDER_MAX) as usize;
        let mut folios = huge_vec(headers);
        folios.resize_with(headers, Folio::new);
        Ok(Frames {
            memory: HugeMemory::new(bytes.next_multiple_of(HUGE_PAGE_SIZE))?,
            total: frames,
            folios: folios.into_boxed_slice(),
            buddy: Mutex::new(Buddy::new(frames)),
            room: Room::default(),
            smaller: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Returns the number of frames.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Takes a free run of 2^`order` frames or, if there is none, the largest smaller one. Returns
    /// it as a frozen folio, which belongs to the caller.
    pub(crate) fn allocate(&self, order: u32) -> Result<FolioId, NoFrames> {
        let mut buddy = self.buddy.lock();
        let found = (0..=order).rev().find_map(|order| Some((buddy.allocate(order)?, order)));
        drop(buddy);
        let Some((frame, got)) = found else {
            self.failed.fetch_add(1, Relaxed);
            return Err(NoFrames);
        };
        if got < order {
            self.smaller.fetch_add(1, Relaxed);
        }
        let id = FolioId::of_frame(frame);
        self.folio(id).set_order(got);
        Ok(id)
    }

    /// Frees the memory of a frozen folio that belongs to the caller. The caller then calls
    /// [`Frames::notice_room`], without holding a lock.
    pub(crate) fn free(&self, id: FolioId) {
        let folio = self.folio(id);
        debug_assert!(folio.state().is_frozen(), "freed while in use");
        self.buddy.lock().free(id.frame(), folio.order());
    }

    /// Takes off a pin, and frees the folio if that was the last pin of a detached folio. Kicks the
    /// operations that wait in `room`.
    #[inline]
    pub(crate) fn unpin(&self, id: FolioId) {
        if self.folio(id).unpin() {
            self.free(id);
        }
        self.room.notice();
    }

    /// Leaves an entry, which the next `notice_room` or `unpin` kicks. The caller then tries again,
    /// because a frame may have become free before.
    pub fn wait_for_room(&self, entry: WaitEntry) {
        self.room.arm(entry);
    }

    /// The caller has freed frames, ended a read, or made a folio reclaimable.
    pub(crate) fn notice_room(&self) {
        self.room.notice();
    }

    /// Returns the header of a folio.
    #[inline]
    pub fn folio(&self, id: FolioId) -> &Folio {
        &self.folios[self.place(id.frame() as usize)]
    }

    /// Returns the folio with this number, if the pool has it. Any number is allowed, because a
    /// look-up without a lock may read a stale one.
    #[inline]
    pub(crate) fn candidate(&self, number: u32) -> Option<(FolioId, &Folio)> {
        let id = FolioId::new(number)?;
        let folio = self.folios.get(self.place(id.frame() as usize))?;
        (id.frame() < self.total).then_some((id, folio))
    }

    /// Returns the place of a frame's header. The headers of the first frames of all 256 KiB blocks
    /// come first, then the headers of their second frames, and so on.
    ///
    /// In the order of frames, the headers of folios of 64 frames would each be alone on a page,
    /// and lie in few sets of the processor's caches. In a 2 GiB pool most look-ups would then miss
    /// the TLB and two levels of cache.
    #[inline]
    fn place(&self, frame: usize) -> usize {
        let rows = self.folios.len() >> ORDER_MAX;
        (frame & ((1 << ORDER_MAX) - 1)) * rows + (frame >> ORDER_MAX)
    }

    /// Returns the address of a folio's memory.
    #[inline]
    pub fn data(&self, id: FolioId) -> *mut u8 {
        self.memory.base().wrapping_add(id.frame() as usize * FRAME_BYTES)
    }

    #[inline]
    pub(crate) fn prefetch_header(&self, number: u32) {
        let place = self.place((number as usize).wrapping_sub(1));
        prefetch(self.folios.as_ptr().wrapping_add(place).cast());
    }

    /// Any number is allowed: the folio need not hold the bytes.
    #[inline]
    pub(crate) fn prefetch_data(&self, number: u32, offset: u64, len: usize, what: Ahead) {
        let Some((id, folio)) = self.candidate(number) else { return };
        // A guess: the header may belong to another folio by now.
        let bytes = (FRAME_BYTES as u64) << (folio.order() & ORDER_MAX);
        let first = self.data(id).wrapping_add((offset & (bytes - 1)) as usize);
        let ahead = match what {
            Ahead::Copy => COPY_AHEAD_BYTES,
            Ahead::Look => LOOK_AHEAD_BYTES,
        };
        for line in (0..len.min(ahead)).step_by(CACHE_LINE) {
            prefetch(first.wrapping_add(line));
        }
        if what == Ahead::Look {
            prefetch(first.wrapping_add(len.saturating_sub(1)));
        }
    }

    /// Returns the memory of the pool.
    pub fn memory(&self) -> &HugeMemory {
        &self.memory
    }

    /// Returns the counts of the pool.
    pub fn counts(&self) -> FrameCounts {
        let buddy = self.buddy.lock();
        FrameCounts {
            total: u64::from(self.total()),
            free: buddy.free_frames(),
            blocks_by_largest: buddy.blocks_by_largest(),
            smaller: self.smaller.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    /// Returns the number of free frames.
    pub fn free_frames(&self) -> u64 {
        self.buddy.lock().free_frames()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_a_multiple_of_two_mebibytes() {
        let frames = Frames::new(1).unwrap();
        assert_eq!((frames.total(), frames.free_frames()), (512, 512));
        assert_eq!(Frames::new(0).err(), Some(Errno::INVAL));
        assert_eq!(Frames::new(1 << 45).err(), Some(Errno::INVAL));
    }

    #[test]
    fn a_full_pool_gives_smaller_runs_then_none() {
        let frames = Frames::with_frames(5).unwrap();
        let large = frames.allocate(6).unwrap();
        assert_eq!(frames.folio(large).order(), 2);
        let small = frames.allocate(6).unwrap();
        assert_eq!(frames.folio(small).order(), 0);
        assert_eq!(frames.allocate(0), Err(NoFrames));
        let counts = frames.counts();
        assert_eq!((counts.free, counts.smaller, counts.failed), (0, 2, 1));
        frames.free(large);
        assert_eq!(frames.counts().blocks_by_largest[2], 1);
    }

    #[test]
    fn runs_are_contiguous_and_apart() {
        let frames = Frames::new(1).unwrap();
        let (first, second) = (frames.allocate(4).unwrap(), frames.allocate(4).unwrap());
        let gap = (frames.data(second) as usize).abs_diff(frames.data(first) as usize);
        assert!(gap >= 16 * FRAME_BYTES);
        assert!((frames.data(first) as usize).is_multiple_of(16 * FRAME_BYTES));
    }
}
