//! The state of a native AIO context's requests between `queue` and `reap`.

use crate::{BioOp, Completion, bio::Bio, slab::Slab};
use nowait_sys::{
    Errno,
    file::{IoVec, rwf},
};
use std::sync::Arc;

pub(super) struct Book {
    pub(super) requests: Slab<Request>,
    /// Requests that are queued and not submitted, each with the thread that queued it; 0: the
    /// kernel had no room for the request.
    pub(super) pending: Vec<(i32, u64)>,
    /// The number of threads that ask the kernel for events. Meanwhile other threads ask the
    /// kernel, too, instead of taking events from the ring. A thread that ended inside that call
    /// stays counted, and from then on every thread asks the kernel.
    pub(super) asking: usize,
    /// The slot of the ring after the last processed event.
    pub(super) dealt_with: u32,
    /// The number of processed events.
    pub(super) events_total: u64,
    /// The number of consecutive commits that waited in vain until another thread processes the
    /// events that it has taken. That thread has ended, or does not get a processor.
    pub(super) waits_in_vain: u32,
}

pub(super) const ANY_THREAD: i32 = 0;

/// The state of the events before requests were submitted.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// The slot of the ring that the kernel fills next.
    pub(super) tail: u32,
    /// [`Book::events_total`].
    pub(super) events_total: u64,
}

pub(super) struct Request {
    pub(super) token: u64,
    /// The events that a poll waits for, including those that are always reported.
    pub(super) poll: Option<u16>,
    pub(super) cancelled: bool,
    /// The bytes to transfer, if the committing thread may get the request back. `None`: it is no
    /// transfer, or it has RWF_NOWAIT itself, or the kernel may wait for it.
    pub(super) claimable: Option<u64>,
    pub(super) claim: Claim,
    /// `true`: the kernel signals an eventfd when the request ends, unless io_submit refuses it.
    pub(super) is_counted: bool,
    pub(super) _segments: Option<Arc<[IoVec]>>,
}

/// The thread that gets a request that the kernel refuses or ends short.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    Reaper,
    /// The committing thread, which is in `commit_or_refuse`.
    Committer,
    /// The committing thread; the kernel has returned this result.
    Refused(i64),
}

impl Request {
    /// Records that the committing thread waits for the kernel's result.
    pub(super) fn is_committed(&mut self) {
        self.claim = Claim::Committer;
    }

    /// Records a result for the committing thread. Returns `false` if the result goes to the
    /// reaper.
    pub(super) fn claims(&mut self, result: i64) -> bool {
        let claims = self.is_unfinished(result);
        if claims {
            self.claim = Claim::Refused(result);
        }
        claims
    }

    /// Records that io_submit has refused the request. A thread in `commit_or_refuse` gets any
    /// refused request with an eventfd, because the kernel does not signal that eventfd. Returns
    /// `false` if the result goes to the reaper.
    pub(super) fn give_back(&mut self, result: i64, committer: Claim) -> bool {
        if self.is_counted && committer == Claim::Committer {
            self.claim = Claim::Refused(result);
            return true;
        }
        self.claims(result)
    }

    /// Returns `true` if the committing thread gets this result.
    pub(super) fn is_unfinished(&self, result: i64) -> bool {
        let is_short = |len: u64| (0..len as i64).contains(&result);
        self.claim == Claim::Committer
            && (is_refusal(result) || self.claimable.is_some_and(is_short))
    }
}

/// Returns the length of a transfer. `None`: the bio is no transfer, or has RWF_NOWAIT itself, so
/// that the kernel's answer is its result.
pub(super) fn claimable(bio: &Bio) -> Option<u64> {
    let is_transfer = matches!(bio.op, BioOp::Read | BioOp::Write);
    (is_transfer && bio.rw_flags & rwf::NOWAIT == 0).then(|| bio.segments.len() as u64)
}

pub(super) fn outcome(result: i64) -> Result<u32, Errno> {
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as u32) }
}

/// Returns `true` if this result means that the kernel would have waited (RWF_NOWAIT).
fn is_refusal(result: i64) -> bool {
    [Errno::AGAIN, Errno::OPNOTSUPP].map(|it| -i64::from(it.raw())).contains(&result)
}

pub(super) fn finish(request: &Request, result: i64) -> Completion {
    let result = match (result, request.poll) {
        (0, Some(_)) if request.cancelled => Err(Errno::CANCELED),
        (result, _) if result < 0 => Err(Errno::new(-result as i32)),
        // The kernel adds other events of the same wake-up (POLLRDNORM).
        (ready, Some(events)) => Ok(ready as u32 & u32::from(events)),
        (bytes, None) => Ok(bytes as u32),
    };
    Completion { token: request.token, result }
}
