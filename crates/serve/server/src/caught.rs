//! Catches panics of work on threads that must not end.

use nowait::Nowait;
use nowait_terminal::say;

/// Runs `work` on the calling thread, and returns `None` if `work` panics. Counts each panic. The
/// first panic of the engine is reported on standard error, with `doing` as the description of the
/// work.
pub(crate) fn caught<T>(nowait: &Nowait, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
    let done = nowait.caught(doing, work);
    if let (None, Some(line)) = (&done, nowait.untold_failure()) {
        say(line);
    }
    done
}
