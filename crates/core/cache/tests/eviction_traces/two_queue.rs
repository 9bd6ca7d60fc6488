//! 2Q, full version. The second queue is a CLOCK here, so that a hit needs no lock.
//!
//! Source: "2Q: a low overhead high performance buffer management replacement algorithm" (Johnson
//! and Shasha, VLDB 1994).

use super::simulation::Policy;
use nowait_cache::policy::{ghost::Ghost, queues::Queues, s3_fifo::Take};

const NEW: usize = 0;
const PROVEN: usize = 1;

pub(crate) struct TwoQueue {
    queues: Queues<2>,
    ghost: Ghost,
    new_frames: u64,
}

impl TwoQueue {
    pub(crate) fn new(ids: u32, frames: u32) -> TwoQueue {
        let (ghost, new_frames) = (Ghost::new(frames / 2), u64::from(frames / 4));
        TwoQueue { queues: Queues::new(ids), ghost, new_frames }
    }
}

impl Policy for TwoQueue {
    fn insert(&mut self, id: u32, hash: u32, frames: u16) {
        let queue = if self.ghost.take(hash) { PROVEN } else { NEW };
        self.queues.push(queue, id, hash, frames);
    }

    fn evict(&mut self, look: &mut dyn FnMut(u32, Take) -> Option<u8>) -> Option<u32> {
        loop {
            let new = self.queues.oldest(NEW).filter(|_| self.queues.frames(NEW) > self.new_frames);
            if let Some(id) =
                new.or(self.queues.oldest(NEW).filter(|_| self.queues.frames(PROVEN) == 0))
            {
                let (hash, frames) = self.queues.of(id);
                self.queues.remove(id);
                self.ghost.insert(hash, frames);
                return Some(id);
            }
            let id = self.queues.oldest(PROVEN)?;
            if look(id, Take::One) == Some(0) {
                self.queues.remove(id);
                return Some(id);
            }
            self.queues.move_to(PROVEN, id);
        }
    }
}
