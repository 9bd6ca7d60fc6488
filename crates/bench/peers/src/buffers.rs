//! The buffers of a run, the same for every engine.
//!
//! A request to a device lists each contiguous piece of its buffer: a buffer in 4 KiB pages has a
//! piece for each page, a buffer in a huge page is one piece. nowait's page cache is in huge pages,
//! and so are the buffers that are compared with it on a device.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use nowait::{AlignedBuffer, IoBuffer, IoBufferMut};
use nowait_sys::memory::{HUGE_PAGE_SIZE, HugeMemory, PAGE_SIZE};

use nowait_harness::error::{Result, failed};

/// Filling each buffer makes the kernel allocate its memory before the clock starts.
const USED: u8 = 0x5a;

#[derive(Default)]
pub(crate) struct Arena {
    /// The current mapping, and the number of its bytes in use.
    rest: Mutex<Option<(Arc<HugeMemory>, usize)>>,
}

pub(crate) struct Buffers {
    pub(crate) block_bytes: usize,
    pub(crate) segments: usize,
    pub(crate) list: Vec<Buffer>,
}

/// A buffer, which does not move in memory. A buffer that is no part of another starts at a page
/// boundary.
pub(crate) struct Buffer {
    start: *mut u8,
    len: usize,
    memory: Memory,
}

#[derive(Clone)]
enum Memory {
    Huge { _shared: Arc<HugeMemory> },
    Small { _shared: Arc<AlignedBuffer> },
}

// SAFETY: a buffer has the only pointer to its part of the memory, like a `Box<[u8]>`.
unsafe impl Send for Buffer {}

impl Arena {
    /// Cuts buffers out of huge pages, as far as the system has them.
    pub(crate) fn cut(&self, block_bytes: usize, depth: usize) -> Result<Buffers> {
        let list = (0..depth).map(|_| self.cut_one(block_bytes)).collect::<Result<_>>()?;
        Ok(Buffers { block_bytes, segments: 1, list })
    }

    fn cut_one(&self, len: usize) -> Result<Buffer> {
        let stride = len.max(1).next_multiple_of(PAGE_SIZE);
        // Blocks of a power of two, up to a huge page, do not cross the border of a huge page.
        let align = if stride.is_power_of_two() { stride.min(HUGE_PAGE_SIZE) } else { PAGE_SIZE };
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let at = rest.as_ref().map(|(memory, taken)| (memory, taken.next_multiple_of(align)));
        let fits = at.filter(|(memory, at)| at + stride <= memory.len());
        let (memory, at) = if let Some((memory, at)) = fits {
            (memory.clone(), at)
        } else {
            let new = HugeMemory::new(stride.next_multiple_of(HUGE_PAGE_SIZE));
            (Arc::new(new.map_err(failed("mmap"))?), 0)
        };
        *rest = Some((memory.clone(), at + stride));
        let start = memory.base().wrapping_add(at);
        Ok(Buffer { start, len, memory: Memory::Huge { _shared: memory } }.used())
    }
}

impl Buffers {
    /// Allocates buffers in pages of 4 KiB, as most programs do.
    pub(crate) fn in_small_pages(block_bytes: usize, depth: usize) -> Self {
        let one = |_| {
            let mut own = AlignedBuffer::zeroed(block_bytes);
            let start = own.as_mut_ptr();
            let memory = Memory::Small { _shared: Arc::new(own) };
            Buffer { start, len: block_bytes, memory }.used()
        };
        Self { block_bytes, segments: 1, list: (0..depth).map(one).collect() }
    }

    pub(crate) fn in_segments(self, segments: usize) -> Self {
        Self { block_bytes: self.block_bytes / segments, segments, ..self }
    }

    pub(crate) fn depth(&self) -> usize {
        self.list.len()
    }
}

impl Buffer {
    pub(crate) fn split(self, len: usize) -> Vec<Buffer> {
        let part =
            |at| Buffer { start: self.start.wrapping_add(at), len, memory: self.memory.clone() };
        (0..self.len).step_by(len).map(part).collect()
    }

    fn used(mut self) -> Self {
        self.fill(USED);
        self
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialized bytes of live memory to which only `self` has a pointer:
        // mappings are zeroed, and each part of one is used once.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

// SAFETY: the memory stays in place and alive until the buffer is dropped, and is its own.
unsafe impl IoBuffer for Buffer {
    fn as_ptr(&self) -> *const u8 {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as above.
unsafe impl IoBufferMut for Buffer {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_nor_cross_huge_pages() {
        let arena = Arena::default();
        let mut all = Vec::new();
        for block_bytes in [512, 4096, 12 << 10, 64 << 10, 1 << 20, 3 << 20] {
            all.extend(arena.cut(block_bytes, 3).expect("memory").list);
        }
        for (number, buffer) in all.iter_mut().enumerate() {
            buffer.fill(number as u8);
        }
        for (number, buffer) in all.iter().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == number as u8), "{number}");
            let start = buffer.start as usize;
            assert!(start.is_multiple_of(PAGE_SIZE));
            if buffer.len.is_power_of_two() && buffer.len <= HUGE_PAGE_SIZE {
                let end = start + buffer.len - 1;
                assert_eq!(start / HUGE_PAGE_SIZE, end / HUGE_PAGE_SIZE, "{}", buffer.len);
            }
        }
    }

    #[test]
    fn a_buffer_outlives_its_arena() {
        let arena = Arena::default();
        let buffers = arena.cut(4096, 2).expect("memory");
        drop(arena);
        assert_eq!(buffers.depth(), 2);
        assert!(buffers.list.iter().all(|buffer| buffer.iter().all(|byte| *byte == USED)));
        let small = Buffers::in_small_pages(8192, 1);
        assert!(small.list[0].iter().all(|byte| *byte == USED));
    }
}
