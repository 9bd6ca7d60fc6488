//! The state of the requests of a native AIO context, between `queue` and `reap`.

use crate::{BioOp, Completion, bio::Bio, slab::Slab};
use nowait_sys::{
    Errno,
    file::{IoVec, rwf},
};
use std::sync::Arc;

pub(super) struct Book {
    pub(super) requests: Slab<Request>,
    /// The keys of requests that are queued and not submitted, each with the number of the thread
    /// that queued it, or with [`ANY_THREAD`] if the kernel had no room for the request.
    pub(super) pending: Vec<(i32, u64)>,
    /// Threads in a system call that takes events. Meanwhile other threads also make this system
    /// call and leave the user-mapped ring alone. A thread that ends inside the call stays counted.
    pub(super) asking: usize,
    /// The slot of the ring that follows the last processed event.
    pub(super) dealt_with: u32,
    pub(super) events_total: u64,
    /// The number of consecutive commits that waited in vain for another thread to process the
    /// events that it has taken.
    pub(super) waits_in_vain: u32,
}

pub(super) const ANY_THREAD: i32 = 0;

#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) tail: u32,
    pub(super) events_total: u64,
}

pub(super) struct Request {
    pub(super) token: u64,
    /// The events that a poll waits for, with POLLERR and POLLHUP; `None`: the request is no poll.
    pub(super) poll: Option<u16>,
    pub(super) cancelled: bool,
    /// The number of bytes to transfer, if the committing thread may get the request back. `None`:
    /// the request is no transfer, or its bio has RWF_NOWAIT itself, or the kernel may wait for it.
    pub(super) claimable: Option<u64>,
    pub(super) claim: Claim,
    /// `true`: the kernel signals an eventfd when the request ends, unless io_submit refuses the
    /// request.
    pub(super) is_counted: bool,
    pub(super) _segments: Option<Arc<[IoVec]>>,
}

/// The thread that gets the result if the kernel refuses a request or transfers only a part of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    Reaper,
    Committer,
    /// The committing thread, and the kernel has returned this result.
    Refused(i64),
}

impl Request {
    /// Records that the committing thread gets the request if the kernel refuses it.
    pub(super) fn is_committed(&mut self) {
        self.claim = Claim::Committer;
    }

    pub(super) fn claims(&mut self, result: i64) -> bool {
        let claims = self.is_unfinished(result);
        if claims {
            self.claim = Claim::Refused(result);
        }
        claims
    }

    /// A thread in `commit_or_refuse` gets every refused request with an eventfd, because the
    /// kernel does not signal that eventfd.
    pub(super) fn give_back(&mut self, result: i64, committer: Claim) -> bool {
        if self.is_counted && committer == Claim::Committer {
            self.claim = Claim::Refused(result);
            return true;
        }
        self.claims(result)
    }

    /// Returns `true` if the committing thread gets this result: a refusal, or a short transfer.
    pub(super) fn is_unfinished(&self, result: i64) -> bool {
        let is_short = |len: u64| (0..len as i64).contains(&result);
        self.claim == Claim::Committer
            && (is_refusal(result) || self.claimable.is_some_and(is_short))
    }
}

/// `None`: the bio is no transfer, or has RWF_NOWAIT itself, and then the kernel's answer is the
/// bio's result.
pub(super) fn claimable(bio: &Bio) -> Option<u64> {
    let is_transfer = matches!(bio.op, BioOp::Read | BioOp::Write);
    (is_transfer && bio.rw_flags & rwf::NOWAIT == 0).then(|| bio.segments.len() as u64)
}

pub(super) fn outcome(result: i64) -> Result<u32, Errno> {
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as u32) }
}

/// Returns `true` if this result can mean that the kernel would have waited (RWF_NOWAIT).
fn is_refusal(result: i64) -> bool {
    [Errno::AGAIN, Errno::OPNOTSUPP].map(|it| -i64::from(it.raw())).contains(&result)
}

pub(super) fn finish(request: &Request, result: i64) -> Completion {
    let result = match (result, request.poll) {
        (0, Some(_)) if request.cancelled => Err(Errno::CANCELED),
        (result, _) if result < 0 => Err(Errno::new(-result as i32)),
        // The kernel may report further events, for which the poll did not ask (POLLRDNORM).
        (ready, Some(events)) => Ok(ready as u32 & u32::from(events)),
        (bytes, None) => Ok(bytes as u32),
    };
    Completion { token: request.token, result }
}
