//! First-in-first-out queues of folios, linked through one array.

const NONE: u32 = u32::MAX;
const OUTSIDE: u16 = u16::MAX;

/// `N` queues over the ids `0..ids`. An id is in at most one queue. Only `new` allocates memory.
#[derive(Debug)]
pub struct Queues<const N: usize> {
    links: Vec<Link>,
    queues: [Queue; N],
}

#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
    hash: u32,
    frames: u16,
    queue: u16,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
    frames: u64,
}

impl<const N: usize> Queues<N> {
    /// Makes empty queues for the ids `0..ids`.
    pub fn new(ids: u32) -> Queues<N> {
        let link = Link { older: NONE, newer: NONE, hash: 0, frames: 0, queue: OUTSIDE };
        let queue = Queue { oldest: NONE, newest: NONE, frames: 0 };
        Queues { links: vec![link; ids as usize], queues: [queue; N] }
    }

    /// Adds `id` to `queue` as its newest id.
    ///
    /// # Panics
    /// The id is in a queue.
    pub fn push(&mut self, queue: usize, id: u32, hash: u32, frames: u16) {
        assert!(self.links[id as usize].queue == OUTSIDE, "folio {id} is queued already");
        let Queue { newest, .. } = self.queues[queue];
        self.links[id as usize] =
            Link { older: newest, newer: NONE, hash, frames, queue: queue as u16 };
        match newest {
            NONE => self.queues[queue].oldest = id,
            _ => self.links[newest as usize].newer = id,
        }
        self.queues[queue].newest = id;
        self.queues[queue].frames += u64::from(frames);
    }

    /// Removes an id from its queue. Returns `false` if the id is in no queue.
    pub fn remove(&mut self, id: u32) -> bool {
        let Link { older, newer, frames, queue, .. } = self.links[id as usize];
        if queue == OUTSIDE {
            return false;
        }
        let ends = &mut self.queues[queue as usize];
        ends.frames -= u64::from(frames);
        match older {
            NONE => ends.oldest = newer,
            _ => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => ends.newest = older,
            _ => self.links[newer as usize].older = older,
        }
        self.links[id as usize].queue = OUTSIDE;
        true
    }

    /// Moves an id to `queue`, as its newest id. Does nothing if the id is in no queue.
    pub fn move_to(&mut self, queue: usize, id: u32) {
        let Link { hash, frames, .. } = self.links[id as usize];
        if self.remove(id) {
            self.push(queue, id, hash, frames);
        }
    }

    /// Returns the oldest id of `queue`.
    pub fn oldest(&self, queue: usize) -> Option<u32> {
        let id = self.queues[queue].oldest;
        (id != NONE).then_some(id)
    }

    /// Returns the next newer id of the same queue. `id` must be in a queue.
    pub fn newer(&self, id: u32) -> Option<u32> {
        let id = self.links[id as usize].newer;
        (id != NONE).then_some(id)
    }

    /// Returns the queue of an id.
    pub fn queue_of(&self, id: u32) -> Option<usize> {
        let queue = self.links[id as usize].queue;
        (queue != OUTSIDE).then_some(queue as usize)
    }

    /// Returns the hash and the number of frames of the last `push` of an id.
    pub fn of(&self, id: u32) -> (u32, u16) {
        let Link { hash, frames, .. } = self.links[id as usize];
        (hash, frames)
    }

    /// Returns the number of frames of all folios in `queue`.
    pub fn frames(&self, queue: usize) -> u64 {
        self.queues[queue].frames
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn contents(queues: &Queues<2>, queue: usize) -> Vec<u32> {
        core::iter::successors(queues.oldest(queue), |id| queues.newer(*id)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn queues_agree_with_the_model(
            steps in prop::collection::vec((0..3u8, 0..2usize, 0..12u32), 0..200),
        ) {
            let mut queues = Queues::<2>::new(12);
            let mut model = [VecDeque::new(), VecDeque::new()];
            for (step, queue, id) in steps {
                let home = model.iter().position(|one| one.contains(&id));
                prop_assert_eq!(queues.queue_of(id), home);
                match (step, home) {
                    (0, None) => {
                        queues.push(queue, id, id + 7, id as u16 + 1);
                        model[queue].push_back(id);
                    }
                    (1, _) => {
                        prop_assert_eq!(queues.remove(id), home.is_some());
                        model.iter_mut().for_each(|one| one.retain(|other| *other != id));
                    }
                    (2, Some(_)) => {
                        queues.move_to(queue, id);
                        model.iter_mut().for_each(|one| one.retain(|other| *other != id));
                        model[queue].push_back(id);
                        prop_assert_eq!(queues.of(id), (id + 7, id as u16 + 1));
                    }
                    _ => {}
                }
                for (n, one) in model.iter().enumerate() {
                    prop_assert_eq!(contents(&queues, n), Vec::from(one.clone()));
                    let frames = one.iter().map(|id| u64::from(*id) + 1).sum::<u64>();
                    prop_assert_eq!(queues.frames(n), frames);
                }
            }
        }
    }
}
