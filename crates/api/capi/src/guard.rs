//! The guard of the functions that can fail: it turns errors into negative numbers and a text of
//! the thread, stops panics, and preserves the C library's `errno`.

use core::ffi::{c_char, c_int};
use nowait::{Errno, Refused};
use nowait_sys::errno;
use std::{
    cell::RefCell,
    ffi::{CStr, CString},
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    static FAILED: RefCell<CString> = RefCell::default();
    static EXPLAINED: RefCell<CString> = RefCell::default();
}

pub(crate) struct Failure {
    errno: Errno,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, doing: &str, because: &str) -> Failure {
        Failure { errno, text: format!("{doing}: {errno}: {because}") }
    }
}

impl From<nowait::Error> for Failure {
    fn from(error: nowait::Error) -> Failure {
        Failure { errno: error.errno(), text: error.to_string() }
    }
}

impl<T, B> From<Refused<T, B>> for Failure {
    fn from(refused: Refused<T, B>) -> Failure {
        refused.error.into()
    }
}

/// Returns the call's value, the negative error number, or `-EIO` if the call panicked.
pub(crate) fn guarded(call: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    // A panic can leave a queue half-changed, but then poisons the queue's lock. A panic leaves
    // nothing else half-changed.
    errno::preserved(|| match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            remember(failure.text);
            negative(failure.errno)
        }
        Err(_) => {
            remember(String::from("internal failure: its message is on standard error"));
            negative(Errno::IO)
        }
    })
}

/// Stores the address of the value that the call makes, or null if the call failed, at `out`.
/// Returns 0 or the negative error number.
///
/// # Safety
/// `out` is valid for writing.
pub(crate) unsafe fn making<T>(
    out: *mut *mut T,
    call: impl FnOnce() -> Result<T, Failure>,
) -> c_int {
    let mut made = core::ptr::null_mut();
    let result = guarded(|| {
        made = Box::into_raw(Box::new(call()?));
        Ok(0)
    });
    // SAFETY: the caller's promise.
    unsafe { out.write(made) };
    result as c_int
}

/// Drops a value that [`making`] has made; does nothing for null.
///
/// # Safety
/// `made` is null or from [`making`], and not dropped yet.
pub(crate) unsafe fn ending<T>(made: *mut T) {
    guarded(|| {
        if !made.is_null() {
            // SAFETY: made by `Box::into_raw`, and the caller gives it up, as promised.
            drop(unsafe { Box::from_raw(made) });
        }
        Ok(0)
    });
}

pub(crate) fn negative(errno: Errno) -> i64 {
    -i64::from(errno.raw())
}

/// Keeps the text of a failure for [`nowait_error_text`]. Drops the text if the thread-local data
/// of this thread has been destroyed: a destructor of pthread_key_create(3) may still call the
/// library then.
pub(crate) fn remember(text: String) {
    let _ = FAILED.try_with(|last| *last.borrow_mut() = c_text(text));
}

/// Returns an empty string if the text contains a zero byte, which no path and no message does.
pub(crate) fn c_text(text: String) -> CString {
    CString::new(text).unwrap_or_default()
}

const NO_TEXT: &CStr = c"no text: the thread ends";

/// Returns the text of the last failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn nowait_error_text() -> *const c_char {
    FAILED.try_with(|text| text.borrow().as_ptr()).unwrap_or(NO_TEXT.as_ptr())
}

/// Returns the text of an error number.
#[unsafe(no_mangle)]
pub extern "C" fn nowait_strerror(error: c_int) -> *const c_char {
    errno::preserved(|| {
        let number = i32::try_from(error.unsigned_abs()).unwrap_or(0);
        let text = match number {
            0 => String::from("Success"),
            _ => Errno::new(number).to_string(),
        };
        let explained = EXPLAINED.try_with(|last| {
            *last.borrow_mut() = c_text(text);
            last.borrow().as_ptr()
        });
        explained.unwrap_or(NO_TEXT.as_ptr())
    })
}
