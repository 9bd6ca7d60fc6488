//! CLOCK with a counter of two bits: a folio goes round once more for each counted hit.

use super::simulation::Policy;
use nowait_cache::policy::{queues::Queues, s3_fifo::Take};

pub(crate) struct Clock(Queues<1>);

impl Clock {
    pub(crate) fn new(ids: u32) -> Clock {
        Clock(Queues::new(ids))
    }
}

impl Policy for Clock {
    fn insert(&mut self, id: u32, hash: u32, frames: u16) {
        self.0.push(0, id, hash, frames);
    }

    fn evict(&mut self, look: &mut dyn FnMut(u32, Take) -> Option<u8>) -> Option<u32> {
        loop {
            let id = self.0.oldest(0)?;
            if look(id, Take::One) == Some(0) {
                self.0.remove(id);
                return Some(id);
            }
            self.0.move_to(0, id);
        }
    }
}
