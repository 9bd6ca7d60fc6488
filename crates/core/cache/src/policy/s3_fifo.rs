//! S3-FIFO: new folios enter a small queue. Folios that are hit more than once there, or come back
//! soon after their eviction from there, enter a main queue.
//!
//! Source: "FIFO queues are all you need for cache eviction" (Yang et al., SOSP 2023), section 4.
//! Added here: folios of different sizes, folios that cannot be evicted now, a limit on the work of
//! one call.

use super::{ghost::Ghost, queues::Queues};

const SMALL: usize = 0;
const MAIN: usize = 1;

/// After this many looks, `evict` takes the next folio that can be evicted, even if it was hit.
/// After twice as many looks it gives up, because the caller holds a lock.
const LOOKS_MAX: u32 = 1024;

/// How a look changes a folio's counter of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Sets the counter to zero.
    All,
    /// Lowers the counter by one if it is above zero.
    One,
}

/// Chooses the folios to evict. Their ids are below the `ids` given to `new`.
///
/// The owner serializes the calls. A hit calls nothing here. Only `new` allocates memory.
#[derive(Debug)]
pub struct S3Fifo {
    queues: Queues<2>,
    ghost: Ghost,
    small_frames: u64,
}

impl S3Fifo {
    /// Makes the policy of an empty cache of `frames` frames.
    pub fn new(ids: u32, frames: u32) -> S3Fifo {
        let small_frames = u64::from(frames / 10).max(1);
        S3Fifo { queues: Queues::new(ids), ghost: Ghost::new(frames), small_frames }
    }

    /// Adds a folio: to the main queue if the ghost queue has `hash` (see [`super::hash`]), else to
    /// the small queue.
    ///
    /// # Panics
    /// The folio is in a queue already.
    pub fn insert(&mut self, id: u32, hash: u32, frames: u16) {
        let queue = if self.ghost.take(hash) { MAIN } else { SMALL };
        self.queues.push(queue, id, hash, frames);
    }

    /// Returns `true` if a queue has the folio.
    pub fn contains(&self, id: u32) -> bool {
        self.queues.queue_of(id).is_some()
    }

    /// Removes a folio from its queue without remembering it. Returns `false` if the folio is in no
    /// queue.
    pub fn remove(&mut self, id: u32) -> bool {
        self.queues.remove(id)
    }

    /// Chooses the folio to evict, and removes it from its queue. Returns `None` if both queues are
    /// empty, or if 2048 looks chose no folio.
    ///
    /// `look` returns the folio's counter of hits (0 to 3), and lowers the counter as [`Take`]
    /// says. It returns `None` if the folio cannot be evicted now, for example because it is pinned
    /// or dirty.
    pub fn evict(&mut self, mut look: impl FnMut(u32, Take) -> Option<u8>) -> Option<u32> {
        for looks in 0..2 * LOOKS_MAX {
            let pressed = looks >= LOOKS_MAX;
            // Alternates between the queues, because all folios of one queue may be pinned.
            let (queue, id) = self.candidate(pressed && looks % 2 == 1)?;
            let (take, hits_max) = if queue == SMALL { (Take::All, 1) } else { (Take::One, 0) };
            match look(id, take) {
                None => self.queues.move_to(queue, id),
                Some(hits) if hits > hits_max && !pressed => self.queues.move_to(MAIN, id),
                Some(_) => {
                    self.leave(queue, id);
                    return Some(id);
                }
            }
        }
        None
    }

    /// Returns the frames of the small queue, and those of the main queue.
    pub fn frames(&self) -> (u64, u64) {
        (self.queues.frames(SMALL), self.queues.frames(MAIN))
    }

    fn candidate(&self, other: bool) -> Option<(usize, u32)> {
        let small_first = (self.queues.frames(SMALL) > self.small_frames) != other;
        let order = if small_first { [SMALL, MAIN] } else { [MAIN, SMALL] };
        order.into_iter().find_map(|queue| Some((queue, self.queues.oldest(queue)?)))
    }

    fn leave(&mut self, queue: usize, id: u32) {
        let (hash, frames) = self.queues.of(id);
        self.queues.remove(id);
        if queue == SMALL {
            self.ghost.insert(hash, frames);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_folio_that_comes_back_soon_is_kept() {
        let mut policy = S3Fifo::new(100, 100);
        (0..100).for_each(|id| policy.insert(id, id, 1));
        assert_eq!(policy.evict(|_, _| Some(0)), Some(0));
        policy.insert(0, 0, 1);
        assert_eq!(policy.frames(), (99, 1));
        let left =
            core::iter::from_fn(|| policy.evict(|_, _| Some(0))).take(89).collect::<Vec<_>>();
        assert_eq!(left, (1..90).collect::<Vec<_>>(), "newcomers leave, it stays");
    }

    #[test]
    fn what_was_removed_is_not_remembered() {
        let mut policy = S3Fifo::new(10, 10);
        policy.insert(3, 77, 1);
        assert!(policy.remove(3) && !policy.remove(3));
        policy.insert(4, 77, 1);
        assert_eq!(policy.frames(), (1, 0));
    }

    #[test]
    fn folios_that_cannot_leave_do_not_hide_those_that_can() {
        let mut policy = S3Fifo::new(4000, 4000);
        (0..1000).for_each(|id| policy.insert(id, id, 1));
        // Folio 5 was hit twice. All other folios are pinned.
        let pinned = |id, _| (id == 5).then_some(2);
        assert_eq!(policy.evict(pinned), Some(5));
        assert_eq!(policy.evict(|_, _| None), None, "the search ends");
        assert_eq!(policy.frames().0, 999);
    }

    #[test]
    fn one_eviction_looks_at_few_folios_even_if_all_were_hit() {
        let mut policy = S3Fifo::new(100_000, 100_000);
        (0..100_000).for_each(|id| policy.insert(id, id, 1));
        let mut looks = 0;
        let hit = |_, _| {
            looks += 1;
            Some(3)
        };
        assert!(policy.evict(hit).is_some());
        assert!(looks <= LOOKS_MAX + 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn each_folio_leaves_once_and_weights_add_up(
            steps in prop::collection::vec((0..4u8, 0..40u32, 1..64u16, 0..4u8), 0..300),
        ) {
            let mut policy = S3Fifo::new(40, 400);
            let (mut here, mut frames) = (BTreeSet::new(), [0u16; 40]);
            for (step, id, weight, hits) in steps {
                match step {
                    0 | 1 if here.insert(id) => {
                        policy.insert(id, id % 16, weight);
                        frames[id as usize] = weight;
                    }
                    2 => prop_assert_eq!(policy.remove(id), here.remove(&id)),
                    3 => {
                        let look = |other, _| (other != id).then_some(hits);
                        match policy.evict(look) {
                            Some(gone) => prop_assert!(gone != id && here.remove(&gone)),
                            None => prop_assert!(here.iter().all(|other| *other == id)),
                        }
                    }
                    _ => {}
                }
                let sum: u64 = here.iter().map(|id| u64::from(frames[*id as usize])).sum();
                prop_assert_eq!(policy.frames().0 + policy.frames().1, sum);
            }
        }
    }
}
