//! What is guessed from what happened last. Its atomic is none of loom's: a reader that has another
//! value than the last one is as right, only slower, so no interleaving of it need be tried.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A guess, at first no.
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
