//! A block of memory that is aligned for direct I/O, with the buffer traits of each crate.

use core::mem::MaybeUninit;
use nowait::AlignedBuffer;

pub(crate) const BLOCK: usize = 4096;

/// [`BLOCK`] bytes, aligned to as many.
pub(crate) struct Block(AlignedBuffer);

impl Block {
    pub(crate) fn new() -> Block {
        Block(AlignedBuffer::zeroed(BLOCK))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

// SAFETY: the bytes are on the heap: moving the value leaves them where they are.
unsafe impl nowait::IoBuffer for Block {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn len(&self) -> usize {
        BLOCK
    }
}

// SAFETY: as above.
unsafe impl nowait::IoBufferMut for Block {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}

// SAFETY: as above.
unsafe impl tokio_uring::buf::IoBuf for Block {
    fn stable_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        BLOCK
    }

    fn bytes_total(&self) -> usize {
        BLOCK
    }
}

// SAFETY: as above.
unsafe impl tokio_uring::buf::IoBufMut for Block {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    // All of it is initialized.
    unsafe fn set_init(&mut self, _: usize) {}
}

impl compio::buf::IoBuf for Block {
    fn as_init(&self) -> &[u8] {
        self.bytes()
    }
}

impl compio::buf::IoBufMut for Block {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the bytes of the buffer, borrowed exclusively; compio writes nothing
        // uninitialized through it.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), BLOCK) }
    }
}

impl compio::buf::SetLen for Block {
    // All of it is initialized.
    unsafe fn set_len(&mut self, _: usize) {}
}
