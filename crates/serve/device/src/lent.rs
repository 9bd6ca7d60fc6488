//! Memory of another owner that a request reads into or writes from without a copy.

use core::{any::Any, fmt, ptr::NonNull};
use nowait::{IoBuffer, IoBufferMut};
use std::sync::Arc;

/// A piece of memory of another owner, such as a guest. The memory stays mapped until this value is
/// dropped, and others may change it at any time.
pub struct LentMemory {
    start: NonNull<u8>,
    len: usize,
    /// The owner that keeps the memory mapped.
    _keeper: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the keeper is `Send` and `Sync`, and the memory is used only by address, from whichever
// thread has the value.
unsafe impl Send for LentMemory {}

impl LentMemory {
    /// Lends `len` bytes from `start` on.
    ///
    /// # Safety
    /// The bytes can be read and written as long as `keeper` lives, and no reference of this
    /// program points to them meanwhile.
    pub unsafe fn new(
        start: NonNull<u8>,
        len: usize,
        keeper: Arc<dyn Any + Send + Sync>,
    ) -> LentMemory {
        LentMemory { start, len, _keeper: keeper }
    }

    /// Copies the memory into `to`, which has the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "the lengths of the memory and of its copy");
        // SAFETY: the bytes are inside the memory, which is mapped and has no references to it.
        unsafe { self.start.as_ptr().copy_to_nonoverlapping(to.as_mut_ptr(), self.len) };
    }

    /// Copies `from`, which has the same length, into the memory.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from(&mut self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "the lengths of the memory and of its copy");
        // SAFETY: as above.
        unsafe { self.start.as_ptr().copy_from_nonoverlapping(from.as_ptr(), self.len) };
    }

    /// Zeroes the bytes that a transfer did not fill because it ended after `done` bytes.
    pub(crate) fn zero_from(&mut self, done: usize) {
        let done = done.min(self.len);
        // SAFETY: the bytes are inside the memory, which is mapped and has no references to it.
        unsafe { self.start.add(done).write_bytes(0, self.len - done) };
    }
}

impl fmt::Debug for LentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes lent", self.len)
    }
}

// SAFETY: the memory does not move with the value, is mapped as long as it lives, and bytes of a
// mapping are initialized. Changes by others are harmless: the lender accepts whatever the memory
// holds when the device reads it.
unsafe impl IoBuffer for LentMemory {
    fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as above; no reference points to it.
unsafe impl IoBufferMut for LentMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}
