//! What a context of native AIO knows of its requests between `queue` and `reap`.

use crate::{BioOp, Completion, bio::Bio, slab::Slab};
use nowait_sys::{
    Errno,
    file::{IoVec, rwf},
};
use std::sync::Arc;

pub(super) struct Book {
    pub(super) requests: Slab<Request>,
    /// Those queued, not submitted, each with the thread that has queued it; 0: the kernel had no
    /// room for it.
    pub(super) pending: Vec<(i32, u64)>,
    /// Threads that ask the kernel for events: meanwhile the ring is its own. A thread that ended
    /// there is counted for ever, and then the kernel is always asked.
    pub(super) asking: usize,
    /// The place in the ring behind the last event that was dealt with.
    pub(super) dealt_with: u32,
    /// How many events were taken and dealt with.
    pub(super) events_total: u64,
    /// Commits in a row that have waited in vain for events that another thread had taken: it has
    /// ended with them, or does not get a processor.
    pub(super) waits_in_vain: u32,
}

pub(super) const ANY_THREAD: i32 = 0;

/// How the events stood before requests were submitted.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// The place of the next one to come.
    pub(super) tail: u32,
    /// [`Book::events_total`].
    pub(super) events_total: u64,
}

pub(super) struct Request {
    pub(super) token: u64,
    /// The events a poll asks for, those that need no asking included.
    pub(super) poll: Option<u16>,
    pub(super) cancelled: bool,
    /// What a transfer is to move; `None`: it is none, or asks itself not to wait, or may wait.
    pub(super) claimable: Option<u64>,
    pub(super) claim: Claim,
    pub(super) _segments: Option<Arc<[IoVec]>>,
}

/// Which thread gets a request that the kernel refuses, or ends short.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    Reaper,
    /// The one that commits it, and is in `commit_or_refuse`.
    Committer,
    /// The same, and the kernel has said this.
    Refused(i64),
}

impl Request {
    /// Says that the committing thread waits for what the kernel says of it.
    pub(super) fn is_committed(&mut self) {
        self.claim = Claim::Committer;
    }

    /// Takes note of a result that the committing thread is to have; false: the reaper is.
    pub(super) fn claims(&mut self, result: i64) -> bool {
        let claims = self.is_unfinished(result);
        if claims {
            self.claim = Claim::Refused(result);
        }
        claims
    }

    /// Tells whether the committing thread is to have this result.
    pub(super) fn is_unfinished(&self, result: i64) -> bool {
        let is_short = |len: u64| (0..len as i64).contains(&result);
        self.claim == Claim::Committer
            && (is_refusal(result) || self.claimable.is_some_and(is_short))
    }
}

/// Returns what a transfer is to move, unless it asks itself not to wait: then what the kernel says
/// is its result.
pub(super) fn claimable(bio: &Bio) -> Option<u64> {
    let is_transfer = matches!(bio.op, BioOp::Read | BioOp::Write);
    (is_transfer && bio.rw_flags & rwf::NOWAIT == 0).then(|| bio.segments.len() as u64)
}

pub(super) fn outcome(result: i64) -> Result<u32, Errno> {
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as u32) }
}

/// Tells whether a transfer ended so because the kernel would have waited (RWF_NOWAIT).
fn is_refusal(result: i64) -> bool {
    [Errno::AGAIN, Errno::OPNOTSUPP].map(|it| -i64::from(it.raw())).contains(&result)
}

pub(super) fn finish(request: &Request, result: i64) -> Completion {
    let result = match (result, request.poll) {
        (0, Some(_)) if request.cancelled => Err(Errno::CANCELED),
        (result, _) if result < 0 => Err(Errno::new(-result as i32)),
        // The kernel adds what else it was told when the events came (POLLRDNORM).
        (ready, Some(events)) => Ok(ready as u32 & u32::from(events)),
        (bytes, None) => Ok(bytes as u32),
    };
    Completion { token: request.token, result }
}
