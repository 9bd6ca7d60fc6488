//! Loans of bytes of the page cache.

use crate::{
    File,
    guard::{Failure, ending, guarded, making},
};
use core::ffi::c_int;
use nowait::{Errno, Lent};
use nowait_sys::file::IoVec;

/// `nowait_loan`.
pub struct Loan(Lent);

/// Lends bytes of a file if they are cached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_lend(
    file: *mut File,
    offset: u64,
    length: usize,
    loan: *mut *mut Loan,
) -> c_int {
    // SAFETY: the caller's pointers, as the header requires.
    unsafe {
        making(loan, || {
            let lent = (*file).0.lend(offset, length)?;
            lent.map(Loan).ok_or_else(|| {
                let because = "some bytes are not cached or are being changed: use a read";
                Failure::new(Errno::AGAIN, "loan of cached bytes", because)
            })
        })
    }
}

/// `nowait_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Lends each of many ranges if its bytes are cached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_lend_many(
    file: *mut File,
    ranges: *const Range,
    count: usize,
    loans: *mut *mut Loan,
) -> c_int {
    let result = guarded(|| {
        let mut wanted = Vec::with_capacity(count);
        for index in 0..count {
            // SAFETY: the caller's arrays have `count` elements.
            let range = unsafe {
                loans.add(index).write(core::ptr::null_mut());
                ranges.add(index).read()
            };
            wanted.push((range.offset, range.length as usize));
        }
        let mut lent_count = 0;
        // SAFETY: the caller's file.
        unsafe { &*file }.0.lend_each(&wanted, |index, lent| {
            if let Some(lent) = lent {
                lent_count += 1;
                // SAFETY: as above.
                unsafe { loans.add(index).write(Box::into_raw(Box::new(Loan(lent)))) };
            }
        })?;
        Ok(lent_count)
    });
    result as c_int
}

/// Returns the number of bytes lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_loan_length(loan: *const Loan) -> usize {
    // SAFETY: the caller's loan.
    unsafe { &*loan }.0.len()
}

/// Stores addresses and lengths of the first `max` pieces. Returns the number of all pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_loan_pieces(
    loan: *const Loan,
    iov: *mut IoVec,
    max: usize,
) -> usize {
    // SAFETY: the caller's loan.
    let chunks = unsafe { &*loan }.0.chunks();
    let count = chunks.len();
    for (index, chunk) in chunks.take(max).enumerate() {
        let piece = IoVec { base: chunk.as_ptr().cast_mut(), len: chunk.len() };
        // SAFETY: the caller's array has `max` elements.
        unsafe { iov.add(index).write(piece) };
    }
    count
}

/// Ends a loan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_loan_return(loan: *mut Loan) {
    // SAFETY: the caller's loan or null.
    unsafe { ending(loan) }
}
