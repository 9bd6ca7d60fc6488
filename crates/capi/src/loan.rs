//! Bytes of the page cache, lent.

use crate::{
    File,
    guard::{Failure, ending, making},
};
use core::ffi::c_int;
use nowait::{Errno, Lent};
use nowait_sys::file::IoVec;

/// `nowait_loan`.
pub struct Loan(Lent);

/// Lends what is cached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_lend(
    file: *mut File,
    offset: u64,
    length: usize,
    loan: *mut *mut Loan,
) -> c_int {
    // SAFETY: the caller's pointers, as the header asks for them.
    unsafe {
        making(loan, || {
            let lent = (*file).0.lend(offset, length)?;
            lent.map(Loan).ok_or_else(|| {
                let because = "not all of it is cached, or it is being changed: read it";
                Failure::new(Errno::AGAIN, "loan of cached bytes", because)
            })
        })
    }
}

/// Returns how many bytes are lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_loan_length(loan: *const Loan) -> usize {
    // SAFETY: the caller's loan.
    unsafe { &*loan }.0.len()
}

/// Stores where they are.
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

/// Gives a loan back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_loan_return(loan: *mut Loan) {
    // SAFETY: the caller's loan or null.
    unsafe { ending(loan) }
}
