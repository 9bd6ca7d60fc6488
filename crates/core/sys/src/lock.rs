//! Locks on single bytes of an open file, which the open file owns, not a process or thread.
//! Source: fcntl(2), "Open file description locks".

use crate::{Errno, sys};

fn of_byte(kind: libc::c_int, byte: u64) -> libc::flock {
    // SAFETY: a flock is plain data, and all zeroes are one.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = 1;
    lock
}

/// Takes a shared lock on `byte`, until [`release`] or the open file's last close. Never waits.
///
/// # Errors
/// `EAGAIN`, `EACCES`: another open file has an exclusive lock on it. `EBADF`: not open for
/// reading. `ENOLCK`, `EOPNOTSUPP`: no locks on this file system.
pub fn share(fd: i32, byte: u64) -> Result<(), Errno> {
    let lock = of_byte(libc::F_RDLCK, byte);
    // SAFETY: `lock` is a live local of the type the call reads.
    unsafe { sys!(libc::SYS_fcntl, fd, libc::F_OFD_SETLK, core::ptr::from_ref(&lock)) }.map(drop)
}

/// Unlocks `byte`.
///
/// # Errors
/// `EBADF`: not open. `ENOLCK`, `EOPNOTSUPP`: no locks on this file system.
pub fn release(fd: i32, byte: u64) -> Result<(), Errno> {
    let lock = of_byte(libc::F_UNLCK, byte);
    // SAFETY: `lock` is a live local of the type the call reads.
    unsafe { sys!(libc::SYS_fcntl, fd, libc::F_OFD_SETLK, core::ptr::from_ref(&lock)) }.map(drop)
}

/// Returns `true` if another open file, or a process, has a lock of any kind on `byte`. Fails as
/// [`release`] does.
pub fn is_locked_by_others(fd: i32, byte: u64) -> Result<bool, Errno> {
    let mut lock = of_byte(libc::F_WRLCK, byte);
    // SAFETY: `lock` is a live local of the type the call reads and fills.
    unsafe { sys!(libc::SYS_fcntl, fd, libc::F_OFD_GETLK, core::ptr::from_mut(&mut lock)) }?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file::{self, O_RDONLY},
        inspect,
    };

    #[test]
    fn a_shared_byte_is_seen_by_other_open_files_until_it_is_closed() {
        let memory = inspect::memory_file(b"").unwrap();
        let open = || file::reopen(memory.raw(), O_RDONLY).unwrap();
        let (one, two, third) = (open(), open(), open());
        let seen = |byte| is_locked_by_others(third.raw(), byte);
        share(one.raw(), 100).unwrap();
        share(two.raw(), 100).unwrap();
        assert_eq!((seen(100), seen(101)), (Ok(true), Ok(false)));
        drop(one);
        assert_eq!(seen(100), Ok(true));
        assert_eq!(is_locked_by_others(two.raw(), 100), Ok(false), "that is its own");
        drop(two);
        assert_eq!(seen(100), Ok(false));
    }
}
