//! Calls of the application that could hit our descriptors, or bypass the library.
//!
//! Requests do not depend on this: they hold their files in the engine's own table. What must be
//! protected are the few descriptors of ours in the application's table (the way to that table,
//! one ring per context), which a daemon's "close everything" would take away.

use crate::calls::{self, Caller, Wanted};
use nowait_process::process::{Process, with_context};
use nowait_sys::{Errno, fd};

/// Forgets what is known of `fd`, which is being closed or replaced. Returns `true` if it is ours,
/// and stays.
pub fn closing(fd: i32) -> bool {
    let Some(process) = Process::existing() else { return false };
    process.forget_descriptor(fd);
    // Ours are at high numbers: an ordinary close does not look further.
    fd::may_be_ours(fd) && descriptors().binary_search(&fd).is_ok()
}

fn descriptors() -> Vec<i32> {
    Process::existing().map(Process::descriptors).unwrap_or_default()
}

/// Closes the range around our descriptors.
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

/// Answers a system call made through `syscall(2)` that concerns a context of ours (MariaDB
/// calls io_getevents so); `None`: let it pass.
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
