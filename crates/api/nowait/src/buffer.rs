//! Memory that a request may own.

pub use nowait_sys::aligned::AlignedBuffer;

/// A value whose memory the engine may read while a queue or a future owns the value: for writes.
///
/// # Safety
/// [`IoBuffer::as_ptr`] and [`IoBuffer::len`] name initialized memory that stays valid, at this
/// address, until the value is dropped or changed through `&mut`: moving the value does not move
/// the memory, and no other code writes to it.
pub unsafe trait IoBuffer: 'static {
    /// Returns the address of the first byte.
    fn as_ptr(&self) -> *const u8;

    /// Returns the number of bytes that a request transfers at most.
    fn len(&self) -> usize;

    /// Returns `true` if there is nothing to transfer.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A value whose memory the engine may fill while a queue or a future owns the value: for reads.
///
/// The length limits the read: a `Vec` without elements reads nothing, whatever its capacity.
///
/// # Safety
/// The promises of [`IoBuffer`]; and the memory may be written, and no other code reads or writes
/// it.
pub unsafe trait IoBufferMut: IoBuffer {
    /// Returns the address of the first byte, for writing.
    fn as_mut_ptr(&mut self) -> *mut u8;
}

// SAFETY: the elements are on the heap; a `Vec` is moved without them.
unsafe impl IoBuffer for Vec<u8> {
    fn as_ptr(&self) -> *const u8 {
        Vec::as_ptr(self)
    }

    fn len(&self) -> usize {
        Vec::len(self)
    }
}

// SAFETY: as above; the value owns its elements.
unsafe impl IoBufferMut for Vec<u8> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        Vec::as_mut_ptr(self)
    }
}

// SAFETY: the bytes are on the heap; a `Box` is moved without them.
unsafe impl IoBuffer for Box<[u8]> {
    fn as_ptr(&self) -> *const u8 {
        <[u8]>::as_ptr(self)
    }

    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
}

// SAFETY: as above; the value owns its bytes.
unsafe impl IoBufferMut for Box<[u8]> {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        <[u8]>::as_mut_ptr(self)
    }
}

// SAFETY: the bytes are on the heap, behind a plain pointer.
unsafe impl IoBuffer for AlignedBuffer {
    fn as_ptr(&self) -> *const u8 {
        AlignedBuffer::as_ptr(self)
    }

    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
}

// SAFETY: as above; the value owns its bytes.
unsafe impl IoBufferMut for AlignedBuffer {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        AlignedBuffer::as_mut_ptr(self)
    }
}

// SAFETY: static memory is never freed, and shared memory is not written.
unsafe impl IoBuffer for &'static [u8] {
    fn as_ptr(&self) -> *const u8 {
        <[u8]>::as_ptr(self)
    }

    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
}
