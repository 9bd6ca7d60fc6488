//! aio_cancel.

use crate::{aiocb::Block, posix::Posix};
use nowait::command::open_for;
use nowait_sys::Errno;

/// What became of the requests (aio.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// All were cancelled: their error is ECANCELED.
    All = 0,
    /// Some go on.
    NotAll = 1,
    /// All were over before.
    Over = 2,
}

/// Cancels the requests under way on `fd`, or only that of `block`. Returns when those that can be
/// cancelled have ended.
///
/// # Errors
/// `EBADF`: not open. `EINVAL`: the block is about another descriptor.
pub fn cancel(fd: i32, block: Option<Block>) -> Result<Cancelled, Errno> {
    open_for(fd)?;
    if block.is_some_and(|block| block.fd() != fd) {
        return Err(Errno::INVAL);
    }
    let Some(posix) = Posix::existing() else { return Ok(Cancelled::Over) };
    let watched = posix.shared.watch(fd, block);
    let asked: Vec<bool> =
        watched.iter().map(|(obj, _)| posix.context.cancel_poll(*obj).is_ok()).collect();
    let mut outcome = Cancelled::Over;
    for ((_, watch), asked) in watched.iter().zip(asked) {
        if !asked {
            if !watch.is_over() {
                return Ok(Cancelled::NotAll);
            }
        } else if watch.was_cancelled() {
            outcome = Cancelled::All;
        }
    }
    Ok(outcome)
}
