//! What is to be said of a thread of the engine that failed. It has another descriptor table, and
//! so no standard error: the next call of the program says it.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use parking_lot::Mutex;

static LINE: Mutex<Option<String>> = Mutex::new(None);
/// There is a line.
static IS_UNTOLD: AtomicBool = AtomicBool::new(false);

/// Keeps a line; on the thread that fails.
pub(crate) fn remember(line: &str) {
    *LINE.lock() = Some(line.to_owned());
    IS_UNTOLD.store(true, Relaxed);
}

/// Tells whether there is something to say.
pub(crate) fn is_untold() -> bool {
    IS_UNTOLD.load(Relaxed)
}

/// Takes the line out, to say it. `None`: there is none, or another thread has it.
pub(crate) fn take() -> Option<String> {
    if !is_untold() {
        return None;
    }
    IS_UNTOLD.store(false, Relaxed);
    LINE.lock().take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_said_once() {
        assert_eq!((is_untold(), take()), (false, None));
        remember("a thread failed");
        assert!(is_untold());
        assert_eq!(take().as_deref(), Some("a thread failed"));
        assert_eq!((is_untold(), take()), (false, None));
    }
}
