//! The one place where bytes move between the cache and memory of the application.
//!
//! The application may change its buffer while we read it, and other threads may change a page
//! while it is copied out: both are allowed by read(2) and write(2), and give mixed bytes, not
//! undefined ones. The copies are therefore `memcpy` on raw addresses, and no reference to such
//! memory exists anywhere.

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
