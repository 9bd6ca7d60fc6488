//! Copies bytes from and to memory of the application.
//!
//! The application may change its buffer while the cache reads it, and other threads may change a
//! page while the cache copies from it. As with read(2) and write(2), the result is a mix of old
//! and new bytes, not undefined behaviour: the copies are `memcpy` on raw addresses, and the cache
//! makes no reference to such memory. Only lent bytes have references (`lend.rs`).

use crate::primitives::{SeqCst, compiler_fence};
use nowait_block::Segments;

/// Some processors compare only the low twelve bits of addresses: a load seems to depend on a store
/// just before it, 4 KiB away, and waits (4K aliasing). An upward copy meets this in each step if
/// its target is a few bytes above its source, modulo 4096. Large blocks of glibc's malloc begin 16
/// bytes past a page boundary.
const ALIAS_BYTES: usize = 4096;
/// Distances, target minus source modulo 4096, at which a copy is slow
/// (docs/decisions/0050-copies-downwards.md).
const ALIASED: core::ops::Range<usize> = 1..32;
/// From this length on, glibc's memcpy uses `rep movsb`, which copies upwards. Shorter copies whose
/// addresses alias go downwards in glibc itself.
const STRING_BYTES: usize = 2112;
/// The bytes that glibc's memcpy loads before it stores any.
const PIECE_BYTES: usize = 256;

/// Copies `len` bytes from a folio to the application.
///
/// # Safety
/// `folio` is pinned memory and `user` memory of the application, both valid for `len` bytes
/// until the call returns; they do not overlap.
#[inline]
pub unsafe fn to_user(folio: *const u8, user: *mut u8, len: usize) {
    // SAFETY: the caller promises this.
    unsafe { copy(folio, user, len) };
}

/// Copies `len` bytes from the application to a folio.
///
/// # Safety
/// As for [`to_user`]; also, the caller has locked the folio.
#[inline]
pub unsafe fn from_user(folio: *mut u8, user: *const u8, len: usize) {
    // SAFETY: the caller promises this.
    unsafe { copy(user, folio, len) };
}

/// The last piece comes first: then each load is below all earlier stores.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes; they do not overlap.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let mut left = len;
    if goes_in_pieces(from.addr(), to.addr(), len) {
        while left > PIECE_BYTES {
            left -= PIECE_BYTES;
            // SAFETY: `left + PIECE_BYTES <= len`, so both parts lie inside the memory that the
            // caller promised.
            unsafe { core::ptr::copy_nonoverlapping(from.add(left), to.add(left), PIECE_BYTES) };
            // Keeps the compiler from merging the pieces. Only speed depends on that.
            compiler_fence(SeqCst);
        }
    }
    // SAFETY: `left <= len`.
    unsafe { core::ptr::copy_nonoverlapping(from, to, left) };
}

/// Only glibc on x86-64 was measured.
#[inline]
fn goes_in_pieces(from: usize, to: usize, len: usize) -> bool {
    cfg!(all(target_arch = "x86_64", target_env = "gnu"))
        && len >= STRING_BYTES
        && ALIASED.contains(&(to.wrapping_sub(from) % ALIAS_BYTES))
}

/// Fills `len` bytes of a folio with zeroes.
///
/// # Safety
/// The memory is valid for `len` bytes, and the caller has locked the folio.
pub unsafe fn zero(folio: *mut u8, len: usize) {
    // SAFETY: the caller promises this.
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
    /// Makes a value that begins at the first byte of the segments.
    ///
    /// # Safety
    /// The segments are valid for reads until the value is dropped; also for writes if
    /// [`User::copy_to_user`] is called.
    pub unsafe fn new(segments: Segments) -> User {
        User { segments, segment: 0, inside: 0 }
    }

    /// Returns the number of bytes of all segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns `true` if the segments have no bytes.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(crate) fn rewind(&mut self) {
        (self.segment, self.inside) = (0, 0);
    }

    /// Fills the application's next `len` bytes from a folio.
    ///
    /// # Safety
    /// `folio` is pinned memory, valid for `len` bytes. At least `len` bytes are left in the
    /// segments.
    pub unsafe fn copy_to_user(&mut self, folio: *const u8, len: usize) {
        self.pieces(len, |user, done, len| {
            // SAFETY: the callers of this function and of `new` promise this. A folio is no memory
            // of the application, so the two do not overlap.
            unsafe { to_user(folio.add(done), user, len) };
        });
    }

    /// Copies the application's next `len` bytes to a folio.
    ///
    /// # Safety
    /// The caller has locked the folio, whose memory `folio` is valid for `len` bytes. At least
    /// `len` bytes are left in the segments.
    pub unsafe fn copy_from_user(&mut self, folio: *mut u8, len: usize) {
        self.pieces(len, |user, done, len| {
            // SAFETY: as above.
            unsafe { from_user(folio.add(done), user, len) };
        });
    }

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
    #[cfg_attr(not(all(target_arch = "x86_64", target_env = "gnu")), ignore = "never in pieces")]
    fn long_copies_a_few_bytes_upwards_go_in_pieces() {
        let goes = |distance: usize, len| goes_in_pieces(4096, 3 * 4096 + distance, len);
        for distance in [1, 16, 31] {
            assert!(goes(distance, STRING_BYTES) && goes(distance, 1 << 20));
            assert!(!goes(distance, STRING_BYTES - 1));
        }
        assert!([0, 32, 2048, 4080, 4095].iter().all(|distance| !goes(*distance, 1 << 20)));
        assert!(goes_in_pieces(3 * 4096, 16, 1 << 20), "also below");
    }

    #[test]
    fn a_copy_in_pieces_equals_a_whole_one() {
        let most = if cfg!(miri) { 3 * STRING_BYTES } else { 65_543 };
        let mut from = AlignedBuffer::zeroed(most);
        from.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8 + 1);
        for len in [0, 1, 256, 2111, 2112, 2113, 2303, 2304, 2305, 4096, most] {
            for distance in [0, 1, 15, 16, 31, 32, 2048, 4095] {
                for way in [to_user, from_user_as_to] {
                    let mut to = AlignedBuffer::zeroed(most + 4096);
                    // SAFETY: `len` bytes of both.
                    unsafe { way(from.as_ptr(), to.as_mut_ptr().add(distance), len) };
                    let (before, rest) = to.split_at(distance);
                    let (copied, after) = rest.split_at(len);
                    assert!(copied == &from[..len], "{len} bytes, {distance} above");
                    assert!(before.iter().chain(after).all(|byte| *byte == 0), "only these");
                }
            }
        }
    }

    unsafe fn from_user_as_to(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: promised by the caller.
        unsafe { from_user(to, from, len) };
    }
}
