//! Memory of a queue, mapped and unmapped.

use crate::{Errno, sys};
use core::ptr::NonNull;
use std::os::fd::{AsRawFd, BorrowedFd};

#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length; its owners decide which thread may touch which bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The system allocates a page when it is first touched.
    pub(super) fn zeroed(len: usize) -> Result<Mapping, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Mapping::new(len, protection, flags, -1, 0)
    }

    pub(super) fn of_device(
        fd: BorrowedFd<'_>,
        offset: usize,
        len: usize,
    ) -> Result<Mapping, Errno> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Mapping::new(len, libc::PROT_READ, flags, fd.as_raw_fd(), offset)
    }

    fn new(
        len: usize,
        protection: i32,
        flags: i32,
        fd: i32,
        offset: usize,
    ) -> Result<Mapping, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start =
            unsafe { sys!(libc::SYS_mmap, 0, len, protection, flags, fd as isize, offset) }?;
        let start = NonNull::new(start as *mut u8).ok_or(Errno::NOMEM)?;
        Ok(Mapping { start, len })
    }

    /// Returns the first byte, valid until drop.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and it is not used after the drop.
        let _ = unsafe { sys!(libc::SYS_munmap, self.start.as_ptr(), self.len) };
    }
}
