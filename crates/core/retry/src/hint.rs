//! A guess from the last observation. A wrong guess costs time only, so loom does not check the
//! interleavings of its atomic.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A guess, `false` at first.
#[derive(Default)]
pub(crate) struct Hint(AtomicBool);

impl Hint {
    /// Returns the guess.
    pub(crate) fn is_yes(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Changes the guess.
    pub(crate) fn set(&self, yes: bool) {
        self.0.store(yes, Relaxed);
    }
}
