//! A read or write of some memory. The kernel may do only a part of a request: a write then
//! continues until all is written or nothing more can be, for example because the disk is full; a
//! read continues only if the kernel's limit for a request cut it off.

use crate::{
    error::{Failure, Outcome},
    memory::Memory,
};
use nowait::{File, IoBuffer, IoBufferMut};
use pyo3::Python;

const REQUEST_BYTES_MAX: usize = 0x7fff_f000;

pub(crate) struct Transfer {
    memory: Memory,
    /// Number of bytes that earlier requests have moved.
    done: usize,
    pub(crate) file: File,
    offset: u64,
    pub(crate) is_write: bool,
}

impl Transfer {
    pub(crate) fn new(memory: Memory, file: File, offset: u64, is_write: bool) -> Transfer {
        Transfer { memory, done: 0, file, offset, is_write }
    }

    /// Returns the offset of the remaining bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.offset.saturating_add(self.done as u64)
    }

    pub(crate) fn size(&self) -> usize {
        self.memory.len()
    }

    /// Returns `true` if the transfer must continue with another request.
    pub(crate) fn moved(&mut self, count: usize) -> bool {
        let asked = self.len();
        self.done += count;
        let goes_on = self.is_write || count == REQUEST_BYTES_MAX;
        goes_on && 0 < count && count < asked
    }

    pub(crate) fn into_memory(self) -> Memory {
        self.memory
    }

    pub(crate) fn into_result(self, py: Python<'_>) -> Outcome {
        let is_whole = self.len() == 0;
        match self.is_write && !is_whole {
            true => Err(Failure::System {
                errno: IO,
                text: "the rest could not be written".to_owned(),
                path: Some(self.file.path().to_owned()),
            }),
            false => self.memory.into_result(py, self.done),
        }
    }
}

const IO: i32 = 5;

// SAFETY: the memory stays alive and in place; the remaining part begins inside it.
unsafe impl IoBuffer for Transfer {
    fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr().wrapping_add(self.done)
    }

    fn len(&self) -> usize {
        self.memory.len() - self.done
    }
}

// SAFETY: as above.
unsafe impl IoBufferMut for Transfer {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(self.done)
    }
}
