//! Catches panics of work on threads that must not end.

use nowait::Nowait;
use nowait_terminal::say;

/// Runs `work` on the calling thread; if `work` panics, counts the panic and returns `None`. Then
/// also reports the engine's first panic on standard error, unless that panic was reported before.
/// `doing` describes the work in such a report.
pub(crate) fn caught<T>(nowait: &Nowait, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
    let done = nowait.caught(doing, work);
    if let (None, Some(line)) = (&done, nowait.untold_failure()) {
        say(line);
    }
    done
}
