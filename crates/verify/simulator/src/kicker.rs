//! Kicks, and the operations that they make runnable.

use nowait_retry::WaitEntry;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::{sync::Arc, task::Wake};

#[derive(Debug, Default)]
pub(crate) struct RunList {
    runnable: Mutex<Vec<u64>>,
    kicks: AtomicU64,
    redundant: AtomicU64,
    /// Every second kick is lost: a canary.
    lossy: AtomicBool,
}

impl RunList {
    pub(crate) fn len(&self) -> usize {
        self.runnable.lock().len()
    }

    pub(crate) fn take(&self, index: usize) -> u64 {
        self.runnable.lock().swap_remove(index)
    }

    pub(crate) fn lose_kicks(&self) {
        self.lossy.store(true, Relaxed);
    }

    /// Returns the number of kicks, and of those for an operation already runnable, or over.
    pub(crate) fn kicks(&self) -> (u64, u64) {
        (self.kicks.load(Relaxed), self.redundant.load(Relaxed))
    }
}

/// The object that an operation leaves in wait queues.
#[derive(Debug)]
pub(crate) struct Kicker {
    id: u64,
    scheduled: AtomicBool,
    list: Arc<RunList>,
}

impl Kicker {
    pub(crate) fn new(id: u64, list: &Arc<RunList>) -> Arc<Kicker> {
        Arc::new(Kicker { id, scheduled: AtomicBool::new(false), list: list.clone() })
    }

    pub(crate) fn schedule(&self) -> bool {
        let fresh = !self.scheduled.swap(true, Relaxed);
        if fresh {
            self.list.runnable.lock().push(self.id);
        }
        fresh
    }

    pub(crate) fn begin(&self) {
        self.scheduled.store(false, Relaxed);
    }

    /// Takes the operation off the run list; later kicks do not put it there again.
    pub(crate) fn retire(&self) {
        if self.scheduled.swap(true, Relaxed) {
            self.list.runnable.lock().retain(|id| *id != self.id);
        }
    }

    pub(crate) fn entry(self: &Arc<Kicker>) -> WaitEntry {
        WaitEntry::from(self.clone())
    }
}

impl Wake for Kicker {
    fn wake(self: Arc<Self>) {
        let before = self.list.kicks.fetch_add(1, Relaxed);
        if before % 2 == 1 && self.list.lossy.load(Relaxed) {
            return;
        }
        if !self.schedule() {
            self.list.redundant.fetch_add(1, Relaxed);
        }
    }
}
