//! The trait of all backends.

use crate::{Bio, Completion};
use nowait_sys::{Errno, time::Deadline};

/// What a backend can take; constant for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bios between `queue` and `reap`.
    pub depth: usize,
    /// Whether reads of the kernel's page cache wait without a thread.
    pub buffered_reads: bool,
    /// Whether writes and syncs of any file wait without a thread. Where not, `commit` may wait
    /// until blocks are allocated, or `submit_now` does in its place, and some file systems
    /// refuse syncs.
    pub writes: bool,
    /// Whether many bios may wait for readiness ([`Bio::is_endless`]), without a thread each, or
    /// one of a few places each.
    pub readiness: bool,
}

impl Limits {
    /// Takes `depth` bios of any kind, and waits for each without a thread.
    pub const fn of_all_kinds(depth: usize) -> Limits {
        Limits { depth, buffered_reads: true, writes: true, readiness: true }
    }
}

/// What the system would not carry without waiting.
#[derive(Debug, Default)]
pub struct Refused {
    /// The tokens, and what the system said: an errno, and then nothing was moved; or fewer bytes
    /// than were to be moved.
    pub bios: Vec<(u64, Result<u32, Errno>)>,
    /// Tokens of those that are in flight, or were refused: `reap` tells, later than usual.
    pub undecided: Vec<u64>,
}

/// Carries bios to the operating system.
///
/// Every bio accepted by `queue` or `submit_now` comes back exactly once from `reap`, failed or
/// not, cancelled or not; also when the system refuses it at `commit`. Or from `commit_or_refuse`.
///
/// All verbs may be called from several threads at once; one thread at a time should `reap`.
pub trait BlockBackend: Send + Sync {
    /// Returns the name used in reports: `uring`, `kaio`, `threads`, `mem`, …
    fn name(&self) -> &'static str;

    /// Returns what the backend can take.
    fn limits(&self) -> Limits;

    /// Takes a bio, or gives it back when `limits().depth` are already in flight (the caller
    /// keeps it and queues it again after the next completion). Starts nothing by itself.
    fn queue(&self, bio: Bio) -> Result<(), Bio>;

    /// Starts what was queued, with few system calls. Does not wait for the device. On return
    /// the system holds the open files of all bios this thread queued.
    fn commit(&self);

    /// Adds completions to `done`: waits until at least `min` were added, the deadline passed or
    /// [`BlockBackend::wake`] was called; with `min` = 0 takes only what is there. The only verb
    /// that may wait, besides `submit_now`.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran while nothing was there.
    fn reap(&self, done: &mut Vec<Completion>, min: usize, deadline: Deadline)
    -> Result<(), Errno>;

    /// Adds the completions that are there to `done`, and starts nothing: for a thread with another
    /// descriptor table than those that queue and commit.
    fn collect(&self, done: &mut Vec<Completion>) {
        let _ = self.reap(done, 0, Deadline::NOW);
    }

    /// Makes the `reap` that waits now, or else the next that would wait, return early. It need not
    /// be cheap when no thread waits: callers know that.
    fn wake(&self);

    /// Asks for an early end of the bio with `token`; if it can still be stopped it completes
    /// with `ECANCELED`, otherwise as usual. Unknown tokens are ignored.
    fn cancel(&self, token: u64);

    /// Returns the descriptors the backend has in the table of the thread that made it.
    fn descriptors(&self) -> Vec<i32> {
        Vec::new()
    }

    /// Tells whether `queue` should be given this many bios more: it takes them, and the disk has
    /// room for them, as far as that is known ([`Tags`](crate::Tags)). Where readiness costs no
    /// request of a device ([`Bio::is_endless`]), bios that wait for it have no part in the depth.
    fn has_room(&self, more: usize) -> bool {
        self.in_flight() + more <= self.limits().depth
    }

    /// As `commit`; returns those bios of the calling thread that the system refused, because it
    /// would have waited for them. `reap` does not bring them.
    fn commit_or_refuse(&self) -> Refused {
        self.commit();
        Refused::default()
    }

    /// Takes one bio in and submits it, as `queue` and `commit_or_refuse` do for several;
    /// `may_wait`: the system may have the thread wait until it takes the bio in. What the system
    /// says of it at once is a refusal, too. Gives the bio back if there is no room, and always
    /// where the backend has no cheaper way than these two.
    fn submit_now(&self, bio: Bio, _may_wait: bool) -> Result<Refused, Bio> {
        Err(bio)
    }

    /// Returns a descriptor of the table of the thread that made the backend, which stays readable
    /// while completions wait to be reaped; `None`: there is none.
    fn readable(&self) -> Option<i32> {
        None
    }

    /// Returns how many bios are between `queue` and `reap`.
    fn in_flight(&self) -> usize;
}
