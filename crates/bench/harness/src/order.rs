//! The order in which a run visits the blocks of a file.

use serde::{Deserialize, Serialize};

use crate::random;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Every block once a lap, in an order without pattern.
    Random,
    /// Any block at each visit, even if it was visited before.
    Uniform,
    /// This many adjoining blocks one after another, each such run at a random place.
    Runs(u64),
    /// Every block once a lap, in ascending order.
    Sequential,
}

#[derive(Debug, Clone)]
pub struct Order {
    access: Access,
    block_bytes: u64,
    blocks: u64,
    bits: u32,
    seed: u64,
}

impl Order {
    /// Takes the whole blocks in the first `set_bytes`; if there are none, the first block.
    pub fn new(access: Access, set_bytes: u64, block_bytes: u64, seed: u64) -> Self {
        let blocks = (set_bytes / block_bytes).max(1);
        let bits = blocks.next_power_of_two().trailing_zeros().max(1);
        Self { access, block_bytes, blocks, bits, seed }
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        let block = match self.access {
            Access::Sequential => index % self.blocks,
            Access::Random => self.shuffled(index % self.blocks),
            Access::Uniform => random::at(self.seed, index) % self.blocks,
            Access::Runs(len) => {
                let runs = (self.blocks / len).max(1);
                random::at(self.seed, index / len) % runs * len + index % len
            }
        };
        block * self.block_bytes
    }

    /// The permutation may have more numbers than there are blocks: skips those of no block.
    fn shuffled(&self, index: u64) -> u64 {
        let mut block = self.permute(index);
        while block >= self.blocks {
            block = self.permute(block);
        }
        block
    }

    /// Permutes the numbers of `bits` bits: each step can be undone.
    fn permute(&self, index: u64) -> u64 {
        let mask = (1 << self.bits) - 1;
        let half = self.bits.div_ceil(2);
        let mut x = index ^ (self.seed & mask);
        for factor in [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
            x = x.wrapping_mul(factor) & mask;
            x ^= x >> half;
        }
        x
    }
}

/// Visits every block once in a random order, then all again in that order, without end.
pub struct Offsets {
    order: Order,
    next: u64,
}

impl Offsets {
    pub fn shuffled(set_bytes: u64, block_bytes: u64, seed: u64) -> Self {
        Self { order: Order::new(Access::Random, set_bytes, block_bytes, seed), next: 0 }
    }

    pub fn blocks(&self) -> u64 {
        self.order.blocks()
    }

    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.next += 1;
        self.order.at(self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_visited_once_a_lap() {
        for access in [Access::Random, Access::Sequential] {
            for (blocks, seed) in [(1, 1), (2, 5), (1000, 7), (4096, 3)] {
                let order = Order::new(access, blocks * 512 + 100, 512, seed);
                for lap in 0..2 {
                    let visits = lap * blocks..(lap + 1) * blocks;
                    let mut seen: Vec<u64> = visits.map(|index| order.at(index) / 512).collect();
                    seen.sort_unstable();
                    assert!(seen.iter().copied().eq(0..blocks), "{blocks} blocks, {access:?}");
                }
            }
        }
    }

    #[test]
    fn random_offsets_do_not_ascend() {
        let mut offsets = Offsets::shuffled(1 << 20, 4096, 1);
        let order: Vec<u64> = (0..256).map(|_| offsets.next()).collect();
        let ascents = order.windows(2).filter(|pair| pair[1] == pair[0] + 4096).count();
        assert!(ascents < 16, "{ascents}");
    }

    #[test]
    fn the_blocks_of_a_run_adjoin_and_lie_in_the_set() {
        let order = Order::new(Access::Runs(8), 100 * 512, 512, 3);
        for run in 0..50 {
            let first = order.at(run * 8);
            assert!(first.is_multiple_of(8 * 512) && first < 96 * 512);
            assert!((0..8).all(|block| order.at(run * 8 + block) == first + block * 512));
        }
    }
}
