//! Work on threads that must survive its panics.

use nowait::Nowait;
use nowait_terminal::say;

/// Runs `work` on a thread that must not end. Returns `None` if it panicked, and reports that once;
/// `doing` describes the work.
pub(crate) fn caught<T>(nowait: &Nowait, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
    let done = nowait.caught(doing, work);
    if let (None, Some(line)) = (&done, nowait.untold_failure()) {
        say(line);
    }
    done
}
