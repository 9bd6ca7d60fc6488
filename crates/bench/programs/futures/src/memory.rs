//! A block of memory that direct I/O takes, by the traits of each crate.

use core::mem::MaybeUninit;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Bytes of a read.
pub(crate) const BLOCK: usize = 4096;

const LAYOUT: Layout = match Layout::from_size_align(BLOCK, BLOCK) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// [`BLOCK`] bytes, aligned to as many.
pub(crate) struct Block(*mut u8);

// SAFETY: it owns its memory.
unsafe impl Send for Block {}

impl Block {
    pub(crate) fn new() -> Block {
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc_zeroed(LAYOUT) };
        if memory.is_null() {
            handle_alloc_error(LAYOUT);
        }
        Block(memory)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: it was allocated with so many bytes, all initialized.
        unsafe { core::slice::from_raw_parts(self.0, BLOCK) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.0, BLOCK) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated by `new`, with this layout.
        unsafe { dealloc(self.0, LAYOUT) }
    }
}

// SAFETY: the bytes are on the heap: moving the value leaves them where they are.
unsafe impl nowait::IoBuffer for Block {
    fn as_ptr(&self) -> *const u8 {
        self.0
    }

    fn len(&self) -> usize {
        BLOCK
    }
}

// SAFETY: as above.
unsafe impl nowait::IoBufferMut for Block {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0
    }
}

// SAFETY: as above.
unsafe impl tokio_uring::buf::IoBuf for Block {
    fn stable_ptr(&self) -> *const u8 {
        self.0
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
        self.0
    }

    // All of it is initialized.
    unsafe fn set_init(&mut self, _: usize) {}
}

// SAFETY: as above.
unsafe impl monoio::buf::IoBufMut for Block {
    fn write_ptr(&mut self) -> *mut u8 {
        self.0
    }

    fn bytes_total(&mut self) -> usize {
        BLOCK
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
        // SAFETY: as for `bytes_mut`; nothing uninitialized is written through it by compio.
        unsafe { core::slice::from_raw_parts_mut(self.0.cast(), BLOCK) }
    }
}

impl compio::buf::SetLen for Block {
    // All of it is initialized.
    unsafe fn set_len(&mut self, _: usize) {}
}
