//! Pipes in packet mode, which the standard library does not make.

use crate::{Errno, Fd, sys};

/// Creates a pipe in packet mode: the reading and the writing end, close-on-exec. Each read returns
/// the bytes of one write of at most 4096 bytes.
///
/// # Errors
/// `EMFILE`, `ENFILE`. Source: pipe(2), O_DIRECT.
pub fn packets() -> Result<(Fd, Fd), Errno> {
    let mut ends = [0i32; 2];
    let flags = libc::O_CLOEXEC | libc::O_DIRECT;
    // SAFETY: `ends` is a live local of two ints.
    unsafe { sys!(libc::SYS_pipe2, ends.as_mut_ptr(), flags) }?;
    Ok((Fd::from_raw(ends[0]), Fd::from_raw(ends[1])))
}
