//! Bios that run one after another; adjoining writes run as one.

use crate::{bio::Bio, line::Line};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

/// The most bytes of one run, unless its first bio is longer. Joined writes end together, so the
/// limit bounds their latency.
const RUN_BYTES_MAX: usize = 512 << 10;
/// The most segments of one system call (IOV_MAX).
const RUN_SEGMENTS_MAX: usize = 1024;

/// The order of one file: its bios run in the order queued, one at a time, except that adjoining
/// writes run as one. A lane occupies at most one worker. A lane belongs to one pool.
#[derive(Debug, Default)]
pub struct Lane {
    queue: Mutex<Queue>,
    /// The number of the first bio in the lane: all lower ones have left. Written under the lock.
    first: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Line<Bio>,
    /// A worker has the lane or will get it.
    scheduled: bool,
}

impl Lane {
    /// Makes an empty lane.
    pub fn new() -> Arc<Lane> {
        Arc::default()
    }

    /// Adds a bio at the end. Returns its number, and `true` if the caller must give the lane to a
    /// worker.
    pub(crate) fn push(&self, bio: Bio) -> (u64, bool) {
        let mut queue = self.queue.lock();
        let number = queue.waiting.push(bio);
        (number, !core::mem::replace(&mut queue.scheduled, true))
    }

    /// Moves the next bio and its number to `run`, which is empty, together with the following bios
    /// that join it ([`Bio::goes_with`]), at most `count` in all. If no bio waits, releases the
    /// lane, so that the next `push` asks for a worker again, and returns `false`.
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

    /// Releases the lane if it is empty. Returns `true` if it is not: it must go to a worker again.
    pub(crate) fn pause(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.scheduled = !queue.waiting.is_empty();
        queue.scheduled
    }

    /// Takes a waiting bio out by its number. Takes no lock if a worker has taken the bio before: a
    /// caller asks for such a bio if a later request happens to have the same token, an address,
    /// and the steps of a simulated run must not depend on addresses.
    pub(crate) fn take(&self, number: u64) -> Option<Bio> {
        if number < self.first.load(Acquire) {
            return None;
        }
        self.queue.lock().waiting.take(number)
    }

    /// Takes the next bio without releasing the lane.
    pub(crate) fn take_first(&self) -> Option<Bio> {
        let mut queue = self.queue.lock();
        let (bio, number) = queue.waiting.pop()?;
        self.first.store(number + 1, Release);
        Some(bio)
    }
}
