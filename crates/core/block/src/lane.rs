//! Bios that workers run one at a time, in order.

use crate::{bio::Bio, line::Line};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

/// Joined writes end together, so the limit bounds their latency.
const RUN_BYTES_MAX: usize = 512 << 10;
const RUN_SEGMENTS_MAX: usize = 1024;

/// A queue of bios, mostly of one file. Workers run the bios one at a time in the order queued, but
/// run adjoining writes that may join in one call. A lane occupies at most one worker of its pool.
#[derive(Debug, Default)]
pub struct Lane {
    queue: Mutex<Queue>,
    /// All bios with lower numbers have left the lane. Written under the lock.
    first: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Line<Bio>,
    /// `true`: a worker has the lane or will get it.
    scheduled: bool,
}

impl Lane {
    /// Makes an empty lane.
    pub fn new() -> Arc<Lane> {
        Arc::default()
    }

    /// Returns the bio's number, and `true` if the caller must give the lane to a worker.
    pub(crate) fn push(&self, bio: Bio) -> (u64, bool) {
        let mut queue = self.queue.lock();
        let number = queue.waiting.push(bio);
        (number, !core::mem::replace(&mut queue.scheduled, true))
    }

    /// Moves the next bio to `run`, which is empty, and the bios that join it ([`Bio::goes_with`]),
    /// at most `count` in all. If no bio waits, returns `false` and releases the lane, so that the
    /// next `push` asks for a worker again.
    pub(crate) fn pop_run(&self, run: &mut Vec<(Bio, u64)>, count: usize) -> bool {
        let mut queue = self.queue.lock();
        let (mut bytes, mut segments) = (0, 0);
        while run.len() < count {
            let Some(next) = queue.waiting.first() else { break };
            bytes += next.segments.len();
            segments += next.segments.as_slice().len();
            if let Some((last, _)) = run.last()
                && (!last.goes_with(next) || bytes > RUN_BYTES_MAX || segments > RUN_SEGMENTS_MAX)
            {
                break;
            }
            let Some(next) = queue.waiting.pop() else { break };
            self.first.store(next.1 + 1, Release);
            run.push(next);
        }
        queue.scheduled = !run.is_empty();
        queue.scheduled
    }

    /// Returns `true` if bios wait: the caller must give the lane to a worker.
    pub(crate) fn pause(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.scheduled = !queue.waiting.is_empty();
        queue.scheduled
    }

    /// Takes no lock for a bio that a worker has taken: the locks of a simulated run must not
    /// depend on tokens, which are addresses.
    pub(crate) fn take(&self, number: u64) -> Option<Bio> {
        if number < self.first.load(Acquire) {
            return None;
        }
        self.queue.lock().waiting.take(number)
    }

    /// Does not release the lane, even if the bio was the last.
    pub(crate) fn take_first(&self) -> Option<Bio> {
        let mut queue = self.queue.lock();
        let (bio, number) = queue.waiting.pop()?;
        self.first.store(number + 1, Release);
        Some(bio)
    }
}
