//! Owned memory that starts on a page, as direct I/O requires.

use crate::memory::PAGE_SIZE;
use core::{
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// A buffer that starts on a page (4096 bytes): suitable for direct I/O on every device with
/// logical blocks of at most that size.
///
/// Like a `Box<[u8]>`, the buffer has a fixed length, and its bytes stay where they are when the
/// buffer is moved.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Makes `len` bytes of zeroes.
    ///
    /// # Panics
    /// If `len`, rounded up to whole pages, exceeds `isize::MAX`.
    pub fn zeroed(len: usize) -> AlignedBuffer {
        let made = AlignedBuffer::try_zeroed(len);
        made.unwrap_or_else(|| handle_alloc_error(layout(len).expect(FITS)))
    }

    /// Makes `len` bytes of zeroes; `None` if there is not enough memory.
    pub fn try_zeroed(len: usize) -> Option<AlignedBuffer> {
        // SAFETY: the layout is of at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout(len)?) })?;
        Some(AlignedBuffer { start, len })
    }

    /// Returns the address of the first byte, a multiple of 4096.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Returns the address of the first byte, for writing.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

const FITS: &str = "a length that fits into memory";

/// Returns the layout for `len` bytes; for one byte if `len` is 0, because an empty allocation has
/// no address.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1), PAGE_SIZE).ok()
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        let layout = layout(self.len).expect(FITS);
        // SAFETY: allocated with this very layout; it is not used after the drop.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes were allocated and zeroed; they are borrowed with `self`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> AlignedBuffer {
        AlignedBuffer::from(&**self)
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(bytes: &[u8]) -> AlignedBuffer {
        let mut copy = AlignedBuffer::zeroed(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer of {} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_memory_has_is_none() {
        for len in [1 << 50, isize::MAX as usize, usize::MAX] {
            assert!(AlignedBuffer::try_zeroed(len).is_none());
        }
    }

    #[test]
    fn every_length_starts_on_a_page_and_is_zero() {
        for len in [0, 1, 512, 4096, 4097, 1 << 20] {
            let mut buffer = AlignedBuffer::zeroed(len);
            assert_eq!(buffer.as_ptr() as usize % PAGE_SIZE, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert_eq!((buffer.len(), buffer.clone().to_vec()), (len, vec![7; len]));
        }
    }
}
