//! The trait of all operations, and the outcome of an iteration.

use crate::wait::Wait;
use nowait_sys::Errno;

/// The outcome of an iteration.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The operation is over, with the bytes transferred (or a value) or the error.
    /// [`Operation::finish`] delivers the result.
    Done(Result<u32, Errno>),
    /// Another party owns the operation and promises to run it once more: a backend with the
    /// result of a bio, or the run list it was handed to. (`-EIOCBQUEUED`)
    Queued,
    /// A wait entry is armed; a kick makes the operation run again. (`-EIOCBRETRY`)
    Retry,
}

/// A series of iterations, each of which makes all the progress it can without waiting.
///
/// The operation itself stores its progress, so that any iteration can stop and any can be the
/// last.
/// Source: `ki_retry`, fs/aio.c, Linux 2.6.11; OLS 2003 paper, section 3.
pub trait Operation: Send + Sized + 'static {
    /// The resources of an iteration: backends, and bios to queue after it has returned.
    type Plug;

    /// Runs an iteration, one at a time. Must not block, except where a caller runs a deferred
    /// request. Bios on the plug reach their backend afterwards.
    fn iterate(&mut self, plug: &mut Self::Plug, wait: &Wait<'_, Self>) -> Step;

    /// Continues after the operation's bio ended with `result`.
    fn complete(
        &mut self,
        plug: &mut Self::Plug,
        wait: &Wait<'_, Self>,
        result: Result<u32, Errno>,
    ) -> Step;

    /// Delivers the final result and releases everything the operation held. It is called last
    /// (rule R5) and once. Only if it has handed the request to another thread instead, it is
    /// called once more: that thread gives the request back as if a bio had ended.
    fn finish(&mut self, plug: &mut Self::Plug, wait: &Wait<'_, Self>, result: Result<u32, Errno>);
}
