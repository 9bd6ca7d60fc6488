//! Pseudoterminals.

use crate::{Errno, sys};

/// Unlocks the terminal of the pseudoterminal `master`. Returns the terminal's number:
/// `/dev/pts/NUMBER`.
///
/// # Errors
/// `EBADF`; `ENOTTY`: it is no master. Source: ioctl_tty(2), TIOCSPTLCK, TIOCGPTN.
pub fn unlock(master: i32) -> Result<u32, Errno> {
    let (locked, mut number) = (0i32, 0u32);
    // SAFETY: a live integer, which the call reads.
    unsafe { sys!(libc::SYS_ioctl, master, libc::TIOCSPTLCK, core::ptr::from_ref(&locked)) }?;
    // SAFETY: a live integer, which the call fills.
    unsafe { sys!(libc::SYS_ioctl, master, libc::TIOCGPTN, core::ptr::from_mut(&mut number)) }?;
    Ok(number)
}
