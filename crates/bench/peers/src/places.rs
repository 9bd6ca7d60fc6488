//! The places of a thread's requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::job::{Transfer, Visits};
use nowait_harness::order::Order;

/// The number of visits in each part. Thus the threads together visit no block twice in a lap.
pub(crate) struct Parts(Vec<AtomicU64>);

impl Parts {
    pub(crate) fn new(visits: Visits) -> Self {
        let (Visits::Part(count) | Visits::Parts(count)) = visits else { return Self(Vec::new()) };
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}

pub(crate) struct Places<'a> {
    parts: &'a [AtomicU64],
    /// The order of the blocks of a part or, without parts, of the whole set.
    order: Order,
    part_bytes: u64,
    /// The part of the next visit. With `by_turns`, the thread visits all parts in turn.
    part: usize,
    by_turns: bool,
    own: u64,
    visits_max: u64,
    /// Number of visits that one request makes, one for each segment.
    step: u64,
}

impl<'a> Places<'a> {
    pub(crate) fn new(
        parts: &'a Parts,
        transfer: &Transfer,
        set_bytes: u64,
        (seed, thread): (u64, usize),
    ) -> Self {
        let parts = parts.0.as_slice();
        let seed = if parts.is_empty() { seed + thread as u64 } else { seed };
        let count = parts.len().max(1);
        let block_bytes = transfer.block_bytes as u64;
        let order = Order::new(transfer.access, set_bytes / count as u64, block_bytes, seed);
        Self {
            parts,
            part_bytes: order.blocks() * block_bytes,
            part: thread % count,
            by_turns: matches!(transfer.visits, Visits::Parts(_)),
            own: 0,
            visits_max: if transfer.one_lap { order.blocks() } else { u64::MAX },
            step: transfer.segments as u64,
            order,
        }
    }

    /// Returns the offset of the next request; `None` after the only lap.
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.parts.is_empty() {
            self.own += self.step;
            return self.at(self.own - self.step, 0);
        }
        let turns = if self.by_turns { self.parts.len() } else { 1 };
        (0..turns).find_map(|_| {
            let part = self.part;
            if self.by_turns {
                self.part = (part + 1) % self.parts.len();
            }
            self.at(self.parts[part].fetch_add(self.step, Relaxed), part)
        })
    }

    fn at(&self, visit: u64, part: usize) -> Option<u64> {
        (visit < self.visits_max).then(|| part as u64 * self.part_bytes + self.order.at(visit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::order::Access;

    #[test]
    fn every_block_of_every_part_is_visited_once() {
        for access in [Access::Random, Access::Sequential] {
            for visits in [Visits::Part(3), Visits::Parts(3)] {
                let transfer = Transfer { access, visits, ..Transfer::SINGLE };
                let parts = Parts::new(visits);
                let threads = (0..3)
                    .map(|thread| Places::new(&parts, &transfer, 1000 * 4096 * 3, (7, thread)));
                let mut seen = Vec::new();
                threads.for_each(|mut it| seen.extend(std::iter::from_fn(|| it.next())));
                seen.sort_unstable();
                assert!(seen.iter().copied().eq((0..3000).map(|block| block * 4096)), "{access:?}");
            }
        }
    }

    #[test]
    fn laps_follow_each_other_unless_one_is_enough() {
        let transfer = Transfer {
            access: Access::Sequential,
            block_bytes: 512,
            visits: Visits::Own,
            one_lap: false,
            segments: 2,
            ..Transfer::SINGLE
        };
        let parts = Parts::new(transfer.visits);
        let mut places = Places::new(&parts, &transfer, 4 * 512, (1, 0));
        let order: Vec<_> = (0..3).filter_map(|_| places.next()).collect();
        assert_eq!(order, [0, 1024, 0]);
    }
}
