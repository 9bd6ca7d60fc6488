//! The trait of all operations.

use crate::wait::Wait;
use nowait_sys::Errno;

/// The outcome of an iteration.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The operation is over, with the bytes transferred (or a value) or the error.
    Done(Result<u32, Errno>),
    /// A backend, another run list or the list of deferred requests holds the operation, and causes
    /// its next run. (`-EIOCBQUEUED`)
    Queued,
    /// A wait entry is armed; its kick makes the operation run again. (`-EIOCBRETRY`)
    Retry,
}

/// A series of iterations, each of which makes all the progress it can without waiting.
///
/// The operation itself stores its progress, so that any iteration can stop and any can be the
/// last. Source: `ki_retry`, fs/aio.c, Linux 2.6.11; OLS 2003 paper, section 3.
pub trait Operation: Send + Sized + 'static {
    /// The resources of an iteration, such as the bios that it has queued.
    type Plug;

    /// Runs one iteration. Must not wait for data, except where a caller runs a deferred request.
    fn iterate(&mut self, plug: &mut Self::Plug, wait: &Wait<'_, Self>) -> Step;

    /// Continues after the operation's bio ended with `result`.
    fn complete(
        &mut self,
        plug: &mut Self::Plug,
        wait: &Wait<'_, Self>,
        result: Result<u32, Errno>,
    ) -> Step;

    /// Delivers the final result and releases the operation's resources. It is called last and
    /// once, with one exception: if it has handed the request to another thread, that thread's
    /// [`Request::run`](crate::Request::run) calls it again.
    fn finish(&mut self, plug: &mut Self::Plug, wait: &Wait<'_, Self>, result: Result<u32, Errno>);
}
