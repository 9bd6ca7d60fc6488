//! A file system in user space: numbers in its requests, and taking it down.

use crate::{Errno, sys};
use core::ffi::CStr;

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
}

/// Takes down what is mounted on `point`; with `lazily` also if it is in use: no new user comes
/// then, and it ends with its last one.
///
/// # Errors
/// `EBUSY`: in use. `EPERM`: without the right. `EINVAL`: nothing is mounted there.
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
