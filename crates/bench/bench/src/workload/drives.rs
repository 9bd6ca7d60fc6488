//! The places of requests: parts of the file, each with an order that all threads share.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::offsets::{Access, permute};

/// The parts of a file. As in the source of rawiobench, a counter for each makes sure that no block
/// is visited twice in a lap, by any thread.
pub(crate) struct Drives {
    counters: Vec<AtomicU64>,
    access: Access,
    block_bytes: u64,
    /// The blocks of one part.
    blocks: u64,
    bits: u32,
    seed: u64,
    one_lap: bool,
}

impl Drives {
    /// Divides the first `set_bytes` into `count` parts of whole blocks, at least one each.
    pub(crate) fn new(
        (set_bytes, count): (u64, usize),
        block_bytes: u64,
        access: Access,
        one_lap: bool,
        seed: u64,
    ) -> Self {
        let blocks = (set_bytes / count as u64 / block_bytes).max(1);
        let bits = blocks.next_power_of_two().trailing_zeros().max(1);
        let counters = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { counters, access, block_bytes, blocks, bits, seed, one_lap }
    }

    /// Returns how many parts there are.
    pub(crate) fn count(&self) -> usize {
        self.counters.len()
    }

    /// Returns the offset of the next block of a part; `None` after the only lap.
    pub(crate) fn next(&self, drive: usize) -> Option<u64> {
        let index = self.counters[drive].fetch_add(1, Relaxed);
        if self.one_lap && index >= self.blocks {
            return None;
        }
        let block = match self.access {
            Access::Sequential => index % self.blocks,
            Access::Random | Access::Uniform => self.shuffled(index % self.blocks),
        };
        Some((drive as u64 * self.blocks + block) * self.block_bytes)
    }

    /// Follows the cycle of a permutation of more numbers until it comes to one of the blocks.
    fn shuffled(&self, index: u64) -> u64 {
        let mut block = permute(index, self.bits, self.seed);
        while block >= self.blocks {
            block = permute(block, self.bits, self.seed);
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_every_part_is_visited_once() {
        for access in [Access::Random, Access::Sequential] {
            let drives = Drives::new((1000 * 4096 * 3, 3), 4096, access, true, 7);
            let mut seen = Vec::new();
            for drive in 0..drives.count() {
                seen.extend(std::iter::from_fn(|| drives.next(drive)));
            }
            seen.sort_unstable();
            assert!(seen.iter().copied().eq((0..3000).map(|block| block * 4096)), "{access:?}");
        }
    }

    #[test]
    fn laps_follow_each_other_unless_one_is_enough() {
        let drives = Drives::new((4 * 512, 1), 512, Access::Sequential, false, 1);
        let order: Vec<_> = (0..6).filter_map(|_| drives.next(0)).collect();
        assert_eq!(order, [0, 512, 1024, 1536, 0, 512]);
    }
}
