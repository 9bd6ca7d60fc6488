//! The guard of the functions that C calls: it stops panics and preserves `errno`.

use nowait_sys::{Errno, errno, inside::Inside};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a call and returns its value, the negative errno, or `-EIO` if the call panicked.
/// Preserves the C library's `errno`. Handlers that `signals.c` watches, except handlers of faults,
/// run only when the outermost call of the library is over.
pub fn guarded(call: impl FnOnce() -> Result<i64, Errno>) -> i64 {
    let _inside = Inside::enter();
    let caught = errno::preserved(|| catch_unwind(AssertUnwindSafe(call)));
    match caught {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => -i64::from(errno.raw()),
        Err(_) => -i64::from(Errno::IO.raw()), // the panic's message is on standard error
    }
}
