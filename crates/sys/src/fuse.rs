//! The kernel's side of a file system in user space: its device, and mounting it.

use crate::{Errno, Fd, fdtable, sys};
use core::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A regular file, as the option `rootmode` and the attributes of a file name it.
pub const REGULAR: u32 = libc::S_IFREG;

/// Flags of fallocate(2) as a request brings them.
pub mod allocation {
    /// The size stays as it is.
    pub const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
    /// Give the space back.
    pub const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
    /// Zeroes, allocated.
    pub const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
}

/// Ways of lseek(2) as a request brings them.
pub mod whence {
    /// The next data.
    pub const DATA: u32 = libc::SEEK_DATA as u32;
    /// The next hole.
    pub const HOLE: u32 = libc::SEEK_HOLE as u32;
}

/// Flags of open(2) as a request brings them.
pub mod open {
    /// What a write to it must be: durable when it ends. O_SYNC contains it.
    pub const DSYNC: u32 = libc::O_DSYNC as u32;
    /// Which of reading and writing is meant.
    pub const ACCESS: u32 = libc::O_ACCMODE as u32;
    /// Only reading.
    pub const READ_ONLY: u32 = libc::O_RDONLY as u32;
}

/// The kernel tells it to one of those who wait for a descriptor. Source: epoll_ctl(2).
pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

const DEVICE: &CStr = c"/dev/fuse";

/// Opens the device. Reading from it does not wait.
///
/// # Errors
/// `ENOENT`, `ENODEV`, `ENXIO`: the kernel has no FUSE. `EACCES`: it is not for this user. `EPERM`:
/// nor for this container.
/// Source: fuse(4).
pub fn open_device() -> Result<OwnedFd, Errno> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the path is a string that lives for ever.
    let fd = unsafe { sys!(libc::SYS_openat, libc::AT_FDCWD, DEVICE.as_ptr(), flags, 0) }?;
    // SAFETY: it is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Opens the device once more for the same mount: each such descriptor brings other requests.
///
/// # Errors
/// Those of [`open_device`]. `EINVAL`: `device` is not mounted.
/// Source: FUSE_DEV_IOC_CLONE, include/uapi/linux/fuse.h.
pub fn clone_device(device: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    /// `_IOR(229, 0, uint32_t)`.
    const CLONE: usize = 2 << 30 | 4 << 16 | 229 << 8;
    let another = open_device()?;
    let number = device.as_raw_fd() as u32;
    let pointer = core::ptr::from_ref(&number);
    // SAFETY: the call reads a live local of four bytes.
    unsafe { sys!(libc::SYS_ioctl, another.as_raw_fd(), CLONE, pointer) }?;
    Ok(another)
}

/// Mounts on `point` what the device answers for that `options` name. Only with the right to.
///
/// # Errors
/// `EPERM`: without the right. `ENOTDIR`, `ENOENT`, `EINVAL`: not on this point.
/// Source: mount(2).
pub fn mount(point: &CStr, options: &CStr, read_only: bool) -> Result<(), Errno> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | if read_only { libc::MS_RDONLY } else { 0 };
    let (source, kind) = (c"nowait", c"fuse.nowait");
    // SAFETY: all are live strings, which the call only reads.
    unsafe {
        sys!(
            libc::SYS_mount,
            source.as_ptr(),
            point.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr()
        )
    }
    .map(drop)
}

/// Takes down what is mounted on `point`; with `lazily` also if it is in use: nobody new comes
/// then, and it ends with its last user.
///
/// # Errors
/// `EBUSY`: in use. `EPERM`: without the right. `EINVAL`: nothing is mounted there.
/// Source: umount2(2).
pub fn unmount(point: &CStr, lazily: bool) -> Result<(), Errno> {
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: a live string, which the call only reads.
    unsafe { sys!(libc::SYS_umount2, point.as_ptr(), flags) }.map(drop)
}

/// Receives the device from fusermount3(1), which has mounted it; waits for it. Reading from it
/// does not wait.
///
/// # Errors
/// `EPIPE`: nothing comes, it has failed and said why. `EMFILE`: no descriptors left.
pub fn receive_device(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let fd: Fd = fdtable::receive_from(socket.as_raw_fd())?;
    // SAFETY: F_SETFL takes no pointer; no flag is lost, as access modes cannot be changed by it.
    unsafe { sys!(libc::SYS_fcntl, fd.raw(), libc::F_SETFL, libc::O_NONBLOCK) }?;
    // SAFETY: it is given up there.
    Ok(unsafe { OwnedFd::from_raw_fd(fd.into_raw()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_device_is_received_with_the_byte_that_brings_it() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        fdtable::send(near.as_raw_fd(), file.as_raw_fd(), 0).unwrap();
        let received = receive_device(far.as_fd()).unwrap();
        assert_eq!(crate::file::stat(received.as_raw_fd()), crate::file::stat(file.as_raw_fd()));
        drop(near);
        // What is left of the message, and then the end.
        assert!(receive_device(far.as_fd()).is_err());
    }

    #[test]
    fn nothing_is_mounted_on_or_taken_from_what_is_not_there() {
        let nowhere = c"/nonexistent/point";
        assert!(mount(nowhere, c"", false).is_err());
        assert!(unmount(nowhere, true).is_err());
    }
}
