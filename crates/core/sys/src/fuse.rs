//! FUSE: the numbers in its requests, and unmounting.

use crate::{Errno, sys};
use core::ffi::CStr;

/// Flags of fallocate(2) as a request brings them.
pub mod allocation {
    /// Keep the file's size.
    pub const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
    /// Free the space.
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
    /// Writes are durable when they end. O_SYNC includes this bit.
    pub const DSYNC: u32 = libc::O_DSYNC as u32;
}

/// Unmounts the file system on `point`. With `lazily` it also unmounts a file system in use: no new
/// user can open the file system, which ends with its last user.
///
/// # Errors
/// `EBUSY`: in use. `EPERM`: the caller has no permission. `EINVAL`: nothing is mounted there.
/// Source: umount2(2).
pub fn unmount(point: &CStr, lazily: bool) -> Result<(), Errno> {
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: a live string, which the call only reads.
    unsafe { sys!(libc::SYS_umount2, point.as_ptr(), flags) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_down_that_is_not_there() {
        assert!(unmount(c"/nonexistent/point", true).is_err());
    }
}
