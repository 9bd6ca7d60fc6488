//! A guess from the last observation. A wrong guess costs only time, so loom does not check its
//! memory ordering.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Default)]
pub(crate) struct Hint(AtomicBool);

impl Hint {
    pub(crate) fn is_yes(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(crate) fn set(&self, yes: bool) {
        self.0.store(yes, Relaxed);
    }
}
