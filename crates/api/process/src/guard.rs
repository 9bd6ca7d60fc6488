//! The guard of the functions that C calls: it stops panics and preserves `errno`.

use nowait_sys::{Errno, errno, inside::Inside};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a call; returns its result or the negative errno, and preserves the C library's `errno`.
/// Signal handlers of the program wait until the call is over.
pub fn guarded(call: impl FnOnce() -> Result<i64, Errno>) -> i64 {
    let _inside = Inside::enter();
    let caught = errno::preserved(|| catch_unwind(AssertUnwindSafe(call)));
    match caught {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => -i64::from(errno.raw()),
        Err(_) => -i64::from(Errno::IO.raw()), // the panic's message is on standard error
    }
}
