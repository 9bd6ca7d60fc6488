//! Operations of a host on files besides requests: they take no virtual time, and
//! `SimDevice::requests` does not count them.

use crate::{SimDevice, trace::What};
use core::ops::Range;
use nowait_sys::Errno;

impl SimDevice {
    /// Makes a file of `size` zero bytes, durable at once, with descriptor `fd`.
    ///
    /// # Panics
    /// The descriptor is in use.
    pub fn create(&self, fd: i32, size: u64) {
        let mut service = self.service.lock();
        service.store.create(fd, size);
        service.note_host("create", fd, 0..size);
    }

    /// Opens the file of `fd` with O_DIRECT as `direct_fd`. Transfers by `direct_fd` need offsets
    /// and lengths that are multiples of the sector size, and addresses that are multiples of 512.
    ///
    /// # Panics
    /// `fd` is not open, or `direct_fd` is in use.
    pub fn open_direct(&self, fd: i32, direct_fd: i32) {
        self.service.lock().store.open_direct(fd, direct_fd);
    }

    /// Sets the size of a file, like ftruncate(2). A later flush or synchronous write makes the
    /// size durable.
    ///
    /// # Errors
    /// `EBADF`: not open. `EIO`: the power is off.
    pub fn set_len(&self, fd: i32, len: u64) -> Result<(), Errno> {
        let mut service = self.service.lock();
        service.is_on()?;
        service.store.by_fd_mut(fd)?.set_len(len);
        service.note_host("set_len", fd, len..len);
        Ok(())
    }

    /// Makes a hole of zeroes, up to the end of the file. A later flush or synchronous write makes
    /// the hole durable.
    ///
    /// # Errors
    /// `EBADF`: not open. `EIO`: the power is off.
    pub fn punch(&self, fd: i32, range: Range<u64>) -> Result<(), Errno> {
        let mut service = self.service.lock();
        service.is_on()?;
        service.store.by_fd_mut(fd)?.punch(range.clone());
        service.note_host("punch", fd, range);
        Ok(())
    }

    /// Returns the size that reads see, in bytes.
    ///
    /// # Errors
    /// `EBADF`: not open. `EIO`: the power is off.
    pub fn size(&self, fd: i32) -> Result<u64, Errno> {
        let service = self.service.lock();
        service.is_on()?;
        Ok(service.store.by_fd(fd)?.volatile.size())
    }

    /// Returns the bytes that reads without faults see, even if the power is off.
    ///
    /// # Errors
    /// `EBADF`: not open.
    pub fn contents(&self, fd: i32) -> Result<Vec<u8>, Errno> {
        Ok(self.service.lock().store.by_fd(fd)?.volatile.read(0, usize::MAX))
    }

    /// Returns the durable bytes: the file without its pending changes.
    ///
    /// # Errors
    /// `EBADF`: not open.
    pub fn durable_contents(&self, fd: i32) -> Result<Vec<u8>, Errno> {
        Ok(self.service.lock().store.by_fd(fd)?.durable.read(0, usize::MAX))
    }
}

impl crate::service::Service {
    fn is_on(&self) -> Result<(), Errno> {
        if self.off.is_some() { Err(Errno::IO) } else { Ok(()) }
    }

    fn note_host(&mut self, call: &'static str, fd: i32, range: Range<u64>) {
        let what = What::Host { call, fd, from: range.start, to: range.end };
        self.trace.note(self.clock.now_ns(), what);
    }
}
