//! Reads that the kernel begins before a call waits for them.

use crate::{
    Errno,
    confined::{self, Extra},
    file::{self, Advice},
    sys,
};

/// cachestat(2). The number is the same on every architecture.
pub const CACHESTAT: i64 = 451;

/// Returns `true` if the page at `offset` is in memory, or being read.
///
/// # Errors
/// The errors of cachestat(2), among them `ENOSYS` before Linux 6.5. `EPERM`: a filter forbids the
/// call, or the program may not ask for this file.
pub fn has_page(fd: i32, offset: u64) -> Result<bool, Errno> {
    confined::check(Extra::Announce)?;
    let range = [offset, 1];
    let mut counts = [0u64; 5];
    // SAFETY: the kernel reads a `struct cachestat_range`, two words, and writes a
    // `struct cachestat`, five words.
    unsafe { sys!(CACHESTAT, fd, range.as_ptr(), counts.as_mut_ptr(), 0) }?;
    Ok(counts[0] > 0)
}

/// Announces a read of `len` bytes from `offset`. May block, see [`file::advise`].
pub fn announce(fd: i32, offset: u64, len: u64) {
    if !confined::forbids(Extra::Announce) {
        // Only advice: if it fails, the read starts later.
        let _ = file::advise(fd, offset, len, Advice::WillNeed);
    }
}
