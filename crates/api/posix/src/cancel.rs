//! aio_cancel.

use crate::{aiocb::Block, posix::Posix};
use nowait_engine::command::open_for;
use nowait_sys::{
    Errno,
    mistake::{self, Mistake},
    time::Deadline,
};

/// The result of a cancellation (aio.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// At least one of the requests ended with ECANCELED, and none of them is still in flight.
    All = 0,
    /// At least one of the requests is still in flight.
    NotAll = 1,
    /// The requests, if there were any, ended by themselves, before the call or during it.
    Over = 2,
}

/// A request that a device is working on may end later than after this time.
const PATIENCE_NS: u64 = 100_000_000;

/// Cancels the requests in flight on `fd`, or only the request of `block`. Returns when all of
/// these requests have ended, but at the latest after `PATIENCE_NS`.
///
/// # Errors
/// `EBADF`: not open. `EINVAL`: the block names another descriptor.
pub fn cancel(fd: i32, block: Option<Block>) -> Result<CancelOutcome, Errno> {
    open_for(fd)?;
    if block.is_some_and(|block| block.fd() != fd) {
        return Err(Errno::INVAL);
    }
    let posix = Posix::existing();
    let watched = posix.map(|posix| posix.shared.watch(fd, block)).unwrap_or_default();
    let (Some(posix), false) = (posix, watched.is_empty()) else {
        // In a forked child, a block whose request the parent has made says for ever that the
        // request is in flight.
        let is_in_flight = block.is_some_and(Block::is_in_flight);
        return Ok(if is_in_flight { CancelOutcome::NotAll } else { CancelOutcome::Over });
    };
    for (obj, _) in &watched {
        // This fails for a request that has ended meanwhile; the request's watch has the result.
        let _ = posix.context.cancel(*obj);
    }
    let deadline = Deadline::after_ns(PATIENCE_NS);
    let ends: Vec<_> = watched.iter().map(|(_, watch)| watch.was_cancelled(deadline)).collect();
    Ok(if ends.contains(&None) {
        CancelOutcome::NotAll
    } else if ends.contains(&Some(!mistake::makes(Mistake::CancelDone))) {
        CancelOutcome::All
    } else {
        CancelOutcome::Over
    })
}
