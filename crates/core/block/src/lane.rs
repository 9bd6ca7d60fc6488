//! Bios that run one after another; adjoining writes run as one.

use crate::{bio::Bio, line::Line};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use nowait_sys::mutex::Mutex;
use std::sync::Arc;

/// The most bytes of joined writes. Joined writes end together, so the limit bounds their latency.
const RUN_BYTES_MAX: usize = 512 << 10;
/// The most segments of one system call (IOV_MAX).
const RUN_SEGMENTS_MAX: usize = 1024;

/// A queue of bios, mostly of one file. Workers run the bios one at a time in the order queued, and
/// adjoining writes that may join as one. A lane occupies at most one worker, and belongs to one
/// pool.
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

    /// Adds a bio at the end. Returns its number, and `true` if the caller must give the lane to a
    /// worker.
    pub(crate) fn push(&self, bio: Bio) -> (u64, bool) {
        let mut queue = self.queue.lock();
        let number = queue.waiting.push(bio);
        (number, !core::mem::replace(&mut queue.scheduled, true))
    }

    /// Moves the next bio and its number to `run`, which is empty, and with it the following bios
    /// that join it ([`Bio::goes_with`]), at most `count` bios in all and within the limits of one
    /// run. If no bio waits, returns `false` and releases the lane, so that the next `push` asks
    /// for a worker again.
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

    /// Releases the lane if it is empty. Otherwise returns `true`: the caller must give the lane to
    /// a worker again.
    pub(crate) fn pause(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.scheduled = !queue.waiting.is_empty();
        queue.scheduled
    }

    /// Takes a waiting bio out by its number; `None` if the bio has left. Takes no lock if a worker
    /// has taken the bio or a later one before. The caller asks for such a bio only if a later
    /// request has the same token. Tokens are addresses, and the locks that a simulated run takes
    /// must not depend on addresses.
    pub(crate) fn take(&self, number: u64) -> Option<Bio> {
        if number < self.first.load(Acquire) {
            return None;
        }
        self.queue.lock().waiting.take(number)
    }

    /// Takes the next bio. Does not release the lane, even if it is then empty.
    pub(crate) fn take_first(&self) -> Option<Bio> {
        let mut queue = self.queue.lock();
        let (bio, number) = queue.waiting.pop()?;
        self.first.store(number + 1, Release);
        Some(bio)
    }
}
