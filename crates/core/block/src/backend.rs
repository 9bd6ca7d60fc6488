//! The trait of all backends.

use crate::{Bio, Completion};
use nowait_sys::{Errno, time::Deadline};

/// The limits of a backend; constant for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bios in flight. In a ring, bios that wait for readiness ([`Bio::is_endless`]) do
    /// not count.
    pub depth: usize,
    /// `true` if a read through the kernel's page cache occupies no thread while it waits.
    pub buffered_reads: bool,
    /// `true` if a write or sync of any file occupies no thread while it waits. It is `false` for
    /// native AIO, whose `commit` or `submit_now` may wait until blocks are allocated and whose
    /// syncs some file systems refuse, and for worker threads.
    pub writes: bool,
    /// `true` if many bios may wait for readiness ([`Bio::is_endless`]) without one thread, or one
    /// of a few slots, for each.
    pub readiness: bool,
}

impl Limits {
    /// Returns the limits of a backend that takes `depth` bios of any kind and waits for each
    /// without a thread.
    pub const fn of_all_kinds(depth: usize) -> Limits {
        Limits { depth, buffered_reads: true, writes: true, readiness: true }
    }
}

/// The bios that the system refused at once, mostly because they would have waited.
#[derive(Debug, Default)]
pub struct Refused {
    /// The tokens and results of the refused bios: an errno if nothing was transferred, or a short
    /// count of bytes.
    pub bios: Vec<(u64, Result<u32, Errno>)>,
    /// The tokens of bios that are in flight or were refused: the backend does not know which.
    /// `reap` returns them with their results, the refused ones later than usual.
    pub undecided: Vec<u64>,
}

/// A backend, which submits bios to the operating system.
///
/// Every bio accepted by `queue` or `submit_now` comes back exactly once, failed or not, cancelled
/// or not: from `reap` or `collect` or, if the system refuses it, perhaps from `commit_or_refuse`
/// or `submit_now`. A pool of workers can pass completions to a function instead (`Deliver::Call`).
///
/// All methods may be called from several threads at once; one thread at a time should `reap`, and
/// with [`Issuer::Single`](nowait_sys::uring::Issuer) that thread is the maker.
pub trait BlockBackend: Send + Sync {
    /// Returns the name used in reports: `uring`, `kaio`, `threads`, `mem`, …
    fn name(&self) -> &'static str;

    /// Returns the backend's limits.
    fn limits(&self) -> Limits;

    /// Accepts a bio, without starting it. Returns the bio as `Err` if there is no room (the caller
    /// queues it again after the next completion), or if the pool of workers is closed.
    fn queue(&self, bio: Bio) -> Result<(), Bio>;

    /// Starts the queued bios, with few system calls. Does not wait for the device. On return the
    /// system has references to the open files of the bios that this thread queued, except with
    /// worker threads, and when a ring has another issuer or the system lacked memory.
    fn commit(&self);

    /// Adds completions to `done`: waits until at least `min` were added, the deadline passed or
    /// [`BlockBackend::wake`] was called; with `min` = 0 takes only the available completions. No
    /// other method waits for completions.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran while there was no completion.
    fn reap(&self, done: &mut Vec<Completion>, min: usize, deadline: Deadline)
    -> Result<(), Errno>;

    /// Adds the available completions to `done` and starts nothing. Called by a thread whose
    /// descriptor table differs from that of the threads that queue and commit.
    fn collect(&self, done: &mut Vec<Completion>) {
        let _ = self.reap(done, 0, Deadline::NOW);
    }

    /// Makes the `reap` that waits now, or else the next that would wait, return early. The call
    /// may be expensive when no thread waits; callers account for that.
    fn wake(&self);

    /// Asks for an early end of the bio with `token`; if it can still be stopped it completes
    /// with `ECANCELED`, otherwise as usual. Unknown tokens are ignored.
    fn cancel(&self, token: u64);

    /// Returns the descriptors the backend has in the table of the thread that made it.
    fn descriptors(&self) -> Vec<i32> {
        Vec::new()
    }

    /// Returns `true` if the caller should queue `more` bios: the backend accepts them and, as far
    /// as is known, the disk has room for them ([`Tags`](crate::Tags)). If waiting for readiness
    /// takes no request of a device ([`Bio::is_endless`]), such bios do not count against the
    /// depth.
    fn has_room(&self, more: usize) -> bool {
        self.in_flight() + more <= self.limits().depth
    }

    /// Commits as `commit` does. Returns the bios of the calling thread that the system
    /// [refused](Refused); `reap` does not return `Refused::bios`. Only native AIO returns any.
    fn commit_or_refuse(&self) -> Refused {
        self.commit();
        Refused::default()
    }

    /// Submits one bio, cheaper than by `queue` and `commit_or_refuse`. With `may_wait` the system
    /// may make the thread wait until it accepts the bio. An errno that the system returns at once
    /// is a refusal, too. Returns the bio as `Err` if there is no room, or if the backend has no
    /// cheaper way than those two calls.
    fn submit_now(&self, bio: Bio, _may_wait: bool) -> Result<Refused, Bio> {
        Err(bio)
    }

    /// Returns a descriptor, in the table of the thread that made the backend, that is readable
    /// while completions wait to be reaped; `None`: there is none.
    fn readable(&self) -> Option<i32> {
        None
    }

    /// Returns how many bios are between `queue` and `reap`.
    fn in_flight(&self) -> usize;
}
