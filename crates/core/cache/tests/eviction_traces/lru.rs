//! LRU (least recently used): a policy that needs a lock for each hit.

use super::simulation::Policy;
use nowait_cache::policy::{queues::Queues, s3_fifo::Take};

pub(crate) struct Lru(Queues<1>);

impl Lru {
    pub(crate) fn new(ids: u32) -> Lru {
        Lru(Queues::new(ids))
    }
}

impl Policy for Lru {
    fn insert(&mut self, id: u32, hash: u32, frames: u16) {
        self.0.push(0, id, hash, frames);
    }

    fn evict(&mut self, _: &mut dyn FnMut(u32, Take) -> Option<u8>) -> Option<u32> {
        let id = self.0.oldest(0)?;
        self.0.remove(id);
        Some(id)
    }

    fn hit(&mut self, id: u32) {
        self.0.move_to(0, id);
    }
}
