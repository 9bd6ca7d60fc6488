//! Bytes of the page cache that a program sees in place.

use core::fmt;
use nowait_cache::PinnedRange;

/// Bytes of a cached file, lent by [`File::lend`](crate::File::lend): they stay as they are, in the
/// page cache, until this is dropped.
///
/// Hold it for as long as a reply takes to send, not longer: the memory cannot be reclaimed, and
/// writes to these pages wait. An operation that the holder waits for must not write them.
pub struct Lent(PinnedRange);

impl Lent {
    pub(crate) fn new(range: PinnedRange) -> Lent {
        Lent(range)
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there is no byte: the range lies behind the end of the file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes in order, in slices of 4 to 256 KiB, less at the ends.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.chunks()
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent {} bytes", self.len())
    }
}
