//! Calls of the application that could close the library's descriptors, or bypass the library.
//!
//! The watch reports closes to the engine, which without these reports defers no request, and
//! remembers less of a descriptor. The watch also protects the library's few descriptors in the
//! application's table from a daemon that closes everything.

use crate::calls::{self, Caller, Wanted};
use nowait_process::process::{Process, with_context};
use nowait_sys::{Errno, fd};

/// Forgets the state of `fd`, which the application closes or replaces. Returns `true` if the
/// library owns `fd`, which stays open.
pub fn closing(fd: i32) -> bool {
    let Some(process) = Process::existing() else { return false };
    process.forget_descriptor(fd);
    // The library's descriptors have high numbers: an ordinary close ends here.
    fd::may_be_ours(fd) && descriptors().binary_search(&fd).is_ok()
}

fn descriptors() -> Vec<i32> {
    Process::existing().map(Process::descriptors).unwrap_or_default()
}

/// Calls close_range(2) for the range, except for the library's descriptors.
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<i64, Errno> {
    if first > last {
        return Err(Errno::INVAL);
    }
    if let Some(process) = Process::existing() {
        process.forget_all_descriptors();
    }
    let mut from = first;
    for ours in descriptors().into_iter().map(|fd| fd as u32) {
        if ours < from || ours > last {
            continue;
        }
        if ours > from {
            fd::close_range(from, ours - 1, flags)?;
        }
        from = ours + 1;
    }
    if from <= last {
        fd::close_range(from, last, flags)?;
    }
    Ok(0)
}

/// Handles a system call, made through `syscall(2)`, that makes a context or concerns a context of
/// the library (MariaDB calls io_getevents this way). `None`: the caller makes the system call.
pub fn syscall(nr: i64, args: [usize; 6]) -> Option<Result<i64, Errno>> {
    use nowait_sys::raw::number;
    let [context, a, b, c, d, sig] = args;
    let ours = || with_context(context, |_| ()).is_some();
    let wanted = Wanted { min: a as i64, nr: b as i64, events: c, timeout: d };
    let answer = match nr {
        number::IO_SETUP => calls::setup(context as u32, a),
        number::IO_DESTROY if ours() => calls::destroy(context),
        number::IO_SUBMIT if ours() => calls::submit(context, a as i64, b),
        number::IO_CANCEL if ours() => calls::cancel(context, a),
        number::IO_GETEVENTS if ours() => calls::getevents(Caller::SystemCall, context, wanted),
        number::IO_PGETEVENTS if ours() => calls::pgetevents_raw(context, wanted, sig),
        _ => return None,
    };
    (answer != Err(calls::NOT_OURS)).then_some(answer)
}
