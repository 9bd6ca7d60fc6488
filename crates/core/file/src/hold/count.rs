//! Counted descriptors: a close waits, for a second at most, until the last of them is closed.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, SeqCst},
};
use nowait_sys::{futex, time::Deadline};
use std::sync::Arc;

/// The number of handles that use a file in some way, and of descriptors that the engine has open
/// for them.
#[derive(Debug, Default)]
pub(crate) struct OpenCount {
    handles: AtomicU32,
    descriptors: AtomicU32,
    /// Changes whenever a waiting close must check the counts again.
    news: AtomicU32,
}

impl OpenCount {
    pub(crate) fn enter(&self) {
        self.handles.fetch_add(1, AcqRel);
        self.tell();
    }

    pub(crate) fn leave(&self) -> bool {
        self.handles.fetch_sub(1, AcqRel) == 1
    }

    pub(crate) fn has_no_handle(&self) -> bool {
        self.handles.load(Acquire) == 0
    }

    pub(crate) fn count(self: &Arc<Self>) -> Counted {
        self.descriptors.fetch_add(1, AcqRel);
        Counted(self.clone())
    }

    /// Returns `true` if a close need not wait: no descriptor is open, or another handle uses the
    /// descriptors.
    pub(crate) fn is_settled(&self) -> bool {
        self.descriptors.load(Acquire) == 0 || !self.has_no_handle()
    }

    pub(crate) fn tell(&self) {
        self.news.fetch_add(1, SeqCst);
        futex::wake(&self.news, u32::MAX);
    }

    /// Returns the value for [`OpenCount::wait`]. The caller reads this value before the counts.
    pub(crate) fn news(&self) -> u32 {
        self.news.load(SeqCst)
    }

    pub(crate) fn wait(&self, seen: u32, deadline: Deadline) {
        let _ = futex::wait(&self.news, seen, deadline);
    }
}

/// Counts a descriptor until the guard is dropped, after the close of the descriptor.
#[derive(Debug)]
pub(crate) struct Counted(Arc<OpenCount>);

impl Counted {
    pub(super) fn all(&self) -> Arc<OpenCount> {
        self.0.clone()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.descriptors.fetch_sub(1, AcqRel);
        self.0.tell();
    }
}
