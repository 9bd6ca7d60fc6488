//! The trait of all backends.

use crate::{Bio, Completion};
use nowait_sys::{Errno, time::Deadline};

/// The limits of a backend; constant for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bios in flight. In a ring, bios that wait for readiness ([`Bio::is_endless`]) do
    /// not count.
    pub depth: usize,
    /// `true` if a read through the kernel's page cache occupies no thread of the engine while it
    /// waits.
    pub buffered_reads: bool,
    /// `true` if a write or sync of any file occupies no thread of the engine while it waits.
    /// Native AIO may wait until blocks are allocated, and some file systems refuse its syncs.
    pub writes: bool,
    /// `true` if a bio that waits for readiness ([`Bio::is_endless`]) occupies no thread, and none
    /// of few slots.
    pub readiness: bool,
}

impl Limits {
    /// Returns the limits of a backend that accepts `depth` bios of any kind, none of which
    /// occupies a thread while it waits.
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
    /// The tokens of bios of which the backend does not know whether the system refused them.
    /// `reap` returns all of them with their results, refused bios later than usual.
    pub undecided: Vec<u64>,
}

/// A backend, which submits bios to the operating system.
///
/// The backend returns exactly once every bio that `queue` or `submit_now` has accepted, also if
/// the bio fails or is cancelled. `reap` or `collect` returns the bio or, if the system refuses it,
/// perhaps `commit_or_refuse` or `submit_now`. A pool of workers can pass completions to a function
/// instead (`Deliver::Call`).
///
/// Several threads may call the methods at once, but only one thread at a time should call `reap`.
/// With [`Issuer::Single`](nowait_sys::uring::Issuer) the thread that waits in `reap` must be the
/// thread that made the backend.
pub trait BlockBackend: Send + Sync {
    /// Returns the name used in reports: `uring`, `kaio`, `threads`, `mem`, …
    fn name(&self) -> &'static str;

    /// Returns the backend's limits.
    fn limits(&self) -> Limits;

    /// Accepts a bio, without starting it. Returns the bio as `Err` if there is no room (after the
    /// next completion there may be), or if the pool of workers is closed.
    fn queue(&self, bio: Bio) -> Result<(), Bio>;

    /// Starts the queued bios, with few system calls. Does not wait for completions; with native
    /// AIO it may wait until the kernel has accepted the bios ([`Limits::writes`]). On return the
    /// system has references to the open files of the bios that this thread queued, except with
    /// worker threads, with a ring that another thread must enter, or if the system lacked memory.
    fn commit(&self);

    /// Adds completions to `done`. Waits until it has added at least `min`, the deadline passes or
    /// a thread calls [`BlockBackend::wake`]; with `min` = 0 it does not wait.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran, and there is no completion to return.
    fn reap(&self, done: &mut Vec<Completion>, min: usize, deadline: Deadline)
    -> Result<(), Errno>;

    /// Adds the available completions to `done` and starts no queued bio. A thread with another
    /// descriptor table than the threads that queue and commit calls this method instead of `reap`.
    fn collect(&self, done: &mut Vec<Completion>) {
        let _ = self.reap(done, 0, Deadline::NOW);
    }

    /// Makes the `reap` that waits now, or else the next `reap` that would wait, return early.
    fn wake(&self);

    /// Asks for an early end of the bio with `token`, if there is such a bio. The bio completes
    /// with `ECANCELED` if the backend can still stop it, otherwise as usual.
    fn cancel(&self, token: u64);

    /// Returns the backend's descriptors in the table of the thread that made the backend.
    fn descriptors(&self) -> Vec<i32> {
        Vec::new()
    }

    /// Returns `true` if the caller should queue `more` bios: the depth has room for them and, as
    /// far as is known, the disk has tags for them ([`Tags`](crate::Tags)).
    fn has_room(&self, more: usize) -> bool {
        self.in_flight() + more <= self.limits().depth
    }

    /// Commits as `commit` does. Returns the committed bios that the system [refused](Refused);
    /// `reap` does not return `Refused::bios`. Only native AIO returns any.
    fn commit_or_refuse(&self) -> Refused {
        self.commit();
        Refused::default()
    }

    /// Submits one bio, cheaper than by `queue` and `commit_or_refuse`. If `may_wait` is `true`,
    /// the system may make the thread wait until the system accepts the bio. An errno that the
    /// system returns at once is a refusal, too, except for `EAGAIN`, which means that there is no
    /// room. Returns the bio as `Err` if there is no room, or if the backend has no cheaper way
    /// than those two calls.
    fn submit_now(&self, bio: Bio, _may_wait: bool) -> Result<Refused, Bio> {
        Err(bio)
    }

    /// Returns a descriptor that is readable while completions wait to be reaped, in the table of
    /// the thread that made the backend; `None` if the backend has no such descriptor.
    fn readable(&self) -> Option<i32> {
        None
    }

    /// Returns how many bios the backend has accepted and not returned yet.
    fn in_flight(&self) -> usize;
}
