//! S3-FIFO with other parameters than the one in use.

use super::simulation::Policy;
use nowait_cache::policy::{ghost::Ghost, queues::Queues, s3_fifo::Take};

const SMALL: usize = 0;
const MAIN: usize = 1;

pub(crate) struct OtherS3Fifo {
    queues: Queues<2>,
    ghost: Ghost,
    small_frames: u64,
    hits_max: u8,
}

impl OtherS3Fifo {
    /// Newcomers with more than `hits_max` hits enter the main queue.
    pub(crate) fn new(ids: u32, frames: u32, hits_max: u8, small_percent: u32) -> OtherS3Fifo {
        let small_frames = u64::from(frames * small_percent / 100).max(1);
        OtherS3Fifo { queues: Queues::new(ids), ghost: Ghost::new(frames), small_frames, hits_max }
    }
}

impl Policy for OtherS3Fifo {
    fn insert(&mut self, id: u32, hash: u32, frames: u16) {
        let queue = if self.ghost.take(hash) { MAIN } else { SMALL };
        self.queues.push(queue, id, hash, frames);
    }

    fn evict(&mut self, look: &mut dyn FnMut(u32, Take) -> Option<u8>) -> Option<u32> {
        loop {
            let small = self.queues.frames(SMALL) > self.small_frames;
            let order = if small { [SMALL, MAIN] } else { [MAIN, SMALL] };
            let oldest = |queue| Some((queue, self.queues.oldest(queue)?));
            let (queue, id) = order.into_iter().find_map(oldest)?;
            let (take, hits_max) =
                if queue == SMALL { (Take::All, self.hits_max) } else { (Take::One, 0) };
            if look(id, take)? > hits_max {
                self.queues.move_to(MAIN, id);
                continue;
            }
            let (hash, frames) = self.queues.of(id);
            self.queues.remove(id);
            if queue == SMALL {
                self.ghost.insert(hash, frames);
            }
            return Some(id);
        }
    }
}
