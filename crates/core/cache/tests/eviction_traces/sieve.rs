//! SIEVE: a hand goes through the queue and skips folios that were hit, without moving them.
//!
//! Source: "SIEVE is simpler than LRU" (Zhang et al., NSDI 2024).

use super::simulation::Policy;
use nowait_cache::policy::{queues::Queues, s3_fifo::Take};

pub(crate) struct Sieve {
    queue: Queues<1>,
    hand: Option<u32>,
}

impl Sieve {
    pub(crate) fn new(ids: u32) -> Sieve {
        Sieve { queue: Queues::new(ids), hand: None }
    }
}

impl Policy for Sieve {
    fn insert(&mut self, id: u32, hash: u32, frames: u16) {
        self.queue.push(0, id, hash, frames);
    }

    fn evict(&mut self, look: &mut dyn FnMut(u32, Take) -> Option<u8>) -> Option<u32> {
        loop {
            let id = self.hand.or(self.queue.oldest(0))?;
            self.hand = self.queue.newer(id);
            if look(id, Take::All) == Some(0) {
                self.queue.remove(id);
                return Some(id);
            }
        }
    }
}
