//! The one place where bytes move between the cache and memory of the application.
//!
//! The application may change its buffer while we read it, and other threads may change a page
//! while it is copied out: both are allowed by read(2) and write(2), and give mixed bytes, not
//! undefined ones. The copies are therefore `memcpy` on raw addresses, and no reference to such
//! memory exists anywhere.

use crate::primitives::{SeqCst, compiler_fence};
use nowait_block::Segments;

/// Processors that look at the low twelve bits of addresses take a load for one of what was just
/// stored 4 KiB away, and wait. A copy upwards by few bytes does so all the way, as far as it goes
/// upwards: memory of malloc(3) begins 16 bytes behind a page, and a folio at a page.
const ALIAS_BYTES: usize = 4096;
/// Distances upwards, in bytes, that make a copy slow (docs/decisions/0050-copies-downwards.md).
const ALIASED: core::ops::Range<usize> = 1..32;
/// Shorter copies load all before they store, or nearly so.
const SHORT_BYTES: usize = 1024;
/// What is copied at a time where the whole would wait: loaded before anything of it is stored.
const PIECE_BYTES: usize = 256;

/// Copies `len` bytes from a folio to the application.
///
/// # Safety
/// `folio` is pinned memory and `user` memory of the application, both valid for `len` bytes
/// until the call returns; they do not overlap.
#[inline]
pub unsafe fn to_user(folio: *const u8, user: *mut u8, len: usize) {
    // SAFETY: promised above.
    unsafe { copy(folio, user, len) };
}

/// Copies `len` bytes from the application to a folio.
///
/// # Safety
/// As for [`to_user`]; the folio is locked by the caller.
#[inline]
pub unsafe fn from_user(folio: *mut u8, user: *const u8, len: usize) {
    // SAFETY: promised above.
    unsafe { copy(user, folio, len) };
}

/// Copies by `memcpy`, or piece by piece downwards, where each load is then below what was stored.
///
/// # Safety
/// Both are valid for `len` bytes, and do not overlap.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let distance = to.addr().wrapping_sub(from.addr()) % ALIAS_BYTES;
    let mut left = len;
    if len >= SHORT_BYTES && ALIASED.contains(&distance) {
        while left > PIECE_BYTES {
            left -= PIECE_BYTES;
            // SAFETY: a part of both.
            unsafe { core::ptr::copy_nonoverlapping(from.add(left), to.add(left), PIECE_BYTES) };
            // Or the compiler makes one copy of all.
            compiler_fence(SeqCst);
        }
    }
    // SAFETY: as above.
    unsafe { core::ptr::copy_nonoverlapping(from, to, left) };
}

/// Fills `len` bytes of a folio with zeroes.
///
/// # Safety
/// The memory is valid for `len` bytes, and the folio locked by the caller.
pub unsafe fn zero(folio: *mut u8, len: usize) {
    // SAFETY: promised above.
    unsafe { folio.write_bytes(0, len) };
}

/// The application's memory of one request, and how far it has been used.
#[derive(Debug)]
pub struct User {
    segments: Segments,
    segment: usize,
    inside: usize,
}

impl User {
    /// Takes in the segments of a request.
    ///
    /// # Safety
    /// They are valid, for writing if [`User::copy_to_user`] is called, until this is dropped.
    pub unsafe fn new(segments: Segments) -> User {
        User { segments, segment: 0, inside: 0 }
    }

    /// Returns the length of all segments, in bytes.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Tells whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Begins again with the first byte.
    pub(crate) fn rewind(&mut self) {
        (self.segment, self.inside) = (0, 0);
    }

    /// Copies the next `len` bytes from a folio.
    ///
    /// # Safety
    /// `folio` is pinned memory, valid for `len` bytes.
    pub unsafe fn copy_to_user(&mut self, folio: *const u8, len: usize) {
        self.pieces(len, |user, done, len| {
            // SAFETY: promised by the caller here, and to `new`; a folio is no memory of the
            // application.
            unsafe { to_user(folio.add(done), user, len) };
        });
    }

    /// Copies the next `len` bytes to a folio.
    ///
    /// # Safety
    /// `folio` is memory locked by the caller, valid for `len` bytes.
    pub unsafe fn copy_from_user(&mut self, folio: *mut u8, len: usize) {
        self.pieces(len, |user, done, len| {
            // SAFETY: as above.
            unsafe { from_user(folio.add(done), user, len) };
        });
    }

    /// Goes `len` bytes on, a segment at a time.
    fn pieces(&mut self, len: usize, mut copy: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        while done < len {
            let segment = self.segments.as_slice()[self.segment];
            let piece = (segment.len - self.inside).min(len - done);
            copy(segment.base.wrapping_add(self.inside), done, piece);
            (done, self.inside) = (done + piece, self.inside + piece);
            if self.inside == segment.len {
                (self.segment, self.inside) = (self.segment + 1, 0);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nowait_sys::aligned::AlignedBuffer;

    #[test]
    fn a_copy_is_exact_at_any_distance_and_length() {
        let most = if cfg!(miri) { 2 * PIECE_BYTES + SHORT_BYTES } else { 65_543 };
        let mut from = AlignedBuffer::zeroed(most);
        from.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8 + 1);
        let lens = [0, 1, 255, 256, 1023, 1024, 1025, 1279, 1280, 1281, 4095, 4096, most];
        for len in lens.into_iter().filter(|len| *len <= most) {
            for distance in [0, 1, 15, 16, 31, 32, 33, 2048, 4064, 4095] {
                let mut to = AlignedBuffer::zeroed(most + 4096);
                // SAFETY: `len` bytes of both.
                unsafe { to_user(from.as_ptr(), to.as_mut_ptr().add(distance), len) };
                let (before, rest) = to.split_at(distance);
                let (copied, after) = rest.split_at(len);
                assert!(copied == &from[..len], "{len} bytes, {distance} above");
                assert!(before.iter().chain(after).all(|byte| *byte == 0), "only these");
            }
        }
    }
}
