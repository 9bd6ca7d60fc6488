//! Memory of another owner, such as a guest, that a request reads into or writes from without a
//! copy.

use core::{any::Any, fmt, ptr::NonNull};
use nowait::{IoBuffer, IoBufferMut};
use std::sync::Arc;

/// A piece of memory of another owner, such as a guest. The memory stays mapped until this value is
/// dropped. The owner may change the bytes at any time.
pub struct LentMemory {
    start: NonNull<u8>,
    len: usize,
    _keeper: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the keeper is `Send` and `Sync`. The value holds only the address of the memory, which is
// valid in all threads.
unsafe impl Send for LentMemory {}

impl LentMemory {
    /// Lends `len` bytes from `start` on.
    ///
    /// # Safety
    /// The bytes must be readable and writable as long as `keeper` lives, and no reference of this
    /// program may point to them meanwhile.
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
        // SAFETY: as in `copy_to`.
        unsafe { self.start.as_ptr().copy_from_nonoverlapping(from.as_ptr(), self.len) };
    }

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

// SAFETY: the memory does not move with the value and is mapped as long as the value lives, and
// bytes of a mapping are initialized. Changes by the owner are harmless: the owner accepts that the
// device writes any bytes that the memory holds meanwhile.
unsafe impl IoBuffer for LentMemory {
    fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as for `IoBuffer`; no reference points to the memory.
unsafe impl IoBufferMut for LentMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}
