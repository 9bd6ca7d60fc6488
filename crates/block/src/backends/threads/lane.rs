//! Bios that run one after another.

use crate::bio::Bio;
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc};

/// The order of one file: its bios run in the order queued, one at a time, and never block
/// those of other lanes. Belongs to one pool.
#[derive(Debug, Default)]
pub struct Lane {
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Bio>,
    /// A worker has the lane, or will get it.
    scheduled: bool,
}

impl Lane {
    /// Makes an empty lane.
    pub fn new() -> Arc<Lane> {
        Arc::default()
    }

    /// Adds a bio at the end; true: the caller must give the lane to a worker.
    pub(super) fn push(&self, bio: Bio) -> bool {
        let mut line = self.line.lock();
        line.waiting.push_back(bio);
        !core::mem::replace(&mut line.scheduled, true)
    }

    /// Takes the next bio; `None` releases the lane.
    pub(super) fn pop(&self) -> Option<Bio> {
        let mut line = self.line.lock();
        let bio = line.waiting.pop_front();
        line.scheduled = bio.is_some();
        bio
    }

    /// Releases the lane if it is empty; true: it is not, and must go to a worker again.
    pub(super) fn pause(&self) -> bool {
        let mut line = self.line.lock();
        line.scheduled = !line.waiting.is_empty();
        line.scheduled
    }

    /// Takes the waiting bio with `token` out.
    pub(super) fn remove(&self, token: u64) -> Option<Bio> {
        let waiting = &mut self.line.lock().waiting;
        let index = waiting.iter().position(|bio| bio.token == token)?;
        waiting.remove(index)
    }

    /// Takes all waiting bios out.
    pub(super) fn clear(&self) -> VecDeque<Bio> {
        core::mem::take(&mut self.line.lock().waiting)
    }
}
