//! The kernel's ublk: block devices served by a process.
//!
//! ```text
//!  /dev/ublk-control ◀─ Control: makes, starts, stops and removes devices
//!  /dev/ublkcN       ◀─ Queue:   requests come in, results go out; a ring of its own
//!  /dev/ublkbN          the block device that others use
//! ```
//! The kernel copies a request's data: for a write into memory of the queue before it announces the
//! request, for a read out of that memory when it gets the result.
//!
//! Source: include/uapi/linux/ublk_cmd.h; Documentation/block/ublk.rst.

mod control;
mod mapping;
mod queue;
mod wire;

pub use control::Control;
pub use queue::{Buffers, Queue};
pub use wire::{
    Basic, DeviceInfo, Discard, Parameters, Request, attribute, feature, operation, request_flag,
    state, types,
};

use crate::{Errno, sys};
use core::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The most requests of a queue.
pub const DEPTH_MAX: u16 = 4096;

/// Opens the server's end of device `id`. A second open fails.
///
/// # Errors
/// `EBUSY`: it is open already. `EACCES`: this user may not. `ENOENT`: there is no such device.
pub fn open_device(id: u32) -> Result<OwnedFd, Errno> {
    let path = format!("/dev/ublkc{id}\0");
    let path = CStr::from_bytes_with_nul(path.as_bytes()).map_err(|_| Errno::INVAL)?;
    open(path, libc::O_RDWR)
}

/// Opens block device `id` as its users do. With `alone`, fails if the device is claimed.
///
/// # Errors
/// `EBUSY`: it is mounted, or otherwise claimed. `EACCES`: this user may not. `ENOENT`: there is no
/// such device.
pub fn open_disk(id: u32, alone: bool) -> Result<OwnedFd, Errno> {
    let path = format!("/dev/ublkb{id}\0");
    let path = CStr::from_bytes_with_nul(path.as_bytes()).map_err(|_| Errno::INVAL)?;
    open(path, libc::O_RDONLY | if alone { libc::O_EXCL } else { 0 })
}

fn open(path: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path is a live string, which the call only reads.
    let fd = unsafe { sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) }?;
    // SAFETY: it is new, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Writes back the dirty pages of a block device and of the file system mounted on it. Waits until
/// the pages are written.
///
/// # Errors
/// `EACCES`: not root. `EIO`: the device has failed.
/// Source: BLKFLSBUF, include/uapi/linux/fs.h.
pub fn write_back(disk: BorrowedFd<'_>) -> Result<(), Errno> {
    const BLKFLSBUF: usize = 0x1261;
    // SAFETY: the request takes no memory.
    unsafe { sys!(libc::SYS_ioctl, disk.as_raw_fd(), BLKFLSBUF, 0) }.map(drop)
}

/// Tells the kernel that this thread and the threads it starts serve a disk: when they are short of
/// memory, they must not wait for writes to that disk.
///
/// # Errors
/// `EPERM`: the thread lacks CAP_SYS_RESOURCE. `EINVAL`: before Linux 5.6.
/// Source: prctl(2), PR_SET_IO_FLUSHER.
pub fn become_io_flusher() -> Result<(), Errno> {
    const SET_IO_FLUSHER: usize = 57;
    // SAFETY: no memory is involved.
    unsafe { sys!(libc::SYS_prctl, SET_IO_FLUSHER, 1, 0, 0, 0) }.map(drop)
}
