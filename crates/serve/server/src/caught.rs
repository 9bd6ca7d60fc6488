//! Work on threads that must survive its panics.

use crate::say::say;
use nowait::Nowait;

/// Runs `work` on a thread that must not end. Returns `None` if it panicked, and reports that once;
/// `doing` describes the work.
pub(crate) fn caught<T>(nowait: &Nowait, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
    let done = nowait.caught(doing, work);
    if let (None, Some(line)) = (&done, nowait.untold_failure()) {
        say(line);
    }
    done
}
