//! Bytes of the page cache, lent to the program in place.

use core::fmt;
use nowait_cache::PinnedRange;

/// Bytes of a cached file, lent by [`File::lend`](crate::File::lend): they stay unchanged in the
/// page cache until this guard is dropped.
///
/// Keep the guard only as long as it takes to send a reply: until its drop the engine cannot
/// reclaim the memory, and writes to these pages wait. Do not wait for such a write while you hold
/// the guard.
pub struct Lent(PinnedRange);

impl Lent {
    pub(crate) fn new(range: PinnedRange) -> Lent {
        Lent(range)
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if no bytes are lent: the range was empty, or lay beyond the end of the file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes in order, in slices of 4 to 256 KiB; the first and the last may be
    /// shorter.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.chunks()
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent {} bytes", self.len())
    }
}
