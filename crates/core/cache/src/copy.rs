//! The one place where bytes move between the cache and memory of the application.
//!
//! The application may change its buffer while we read it, and other threads may change a page
//! while it is copied out: both are allowed by read(2) and write(2), and give mixed bytes, not
//! undefined ones. The copies are therefore `memcpy` on raw addresses, and no reference to such
//! memory exists anywhere.

use nowait_block::Segments;

/// Copies `len` bytes from a folio to the application.
///
/// # Safety
/// `folio` is pinned memory and `user` memory of the application, both valid for `len` bytes
/// until the call returns; they do not overlap.
#[inline]
pub unsafe fn to_user(folio: *const u8, user: *mut u8, len: usize) {
    // SAFETY: promised above.
    unsafe { core::ptr::copy_nonoverlapping(folio, user, len) };
}

/// Copies `len` bytes from the application to a folio.
///
/// # Safety
/// As for [`to_user`]; the folio is locked by the caller.
#[inline]
pub unsafe fn from_user(folio: *mut u8, user: *const u8, len: usize) {
    // SAFETY: promised above.
    unsafe { core::ptr::copy_nonoverlapping(user, folio, len) };
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
