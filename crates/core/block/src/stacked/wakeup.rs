//! Distinguishes a wake-up for the caller from one for the wrapper itself.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Release},
};

/// Set by the wrapper's `wake`, which then wakes the backend below; spent by the `reap` that
/// returns early for it.
#[derive(Debug, Default)]
pub(super) struct Wakeup(AtomicBool);

impl Wakeup {
    pub(super) fn set(&self) {
        self.0.store(true, Release);
    }

    /// Returns `true` if a wake-up is due, and spends it.
    pub(super) fn spend(&self) -> bool {
        self.0.swap(false, AcqRel)
    }
}
