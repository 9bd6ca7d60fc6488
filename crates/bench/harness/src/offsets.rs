//! The offsets of requests.

use serde::{Deserialize, Serialize};

use crate::stats::SplitMix;

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Every block once a lap, in an order without pattern.
    Random,
    /// Any block, whether it was visited before or not.
    Uniform,
    /// Every block in ascending order.
    Sequential,
}

/// The offsets of a run, without end: every block once, then all of them again; or any of them.
pub struct Offsets {
    access: Access,
    block_bytes: u64,
    blocks: u64,
    /// Bits of an index, for the permutation.
    bits: u32,
    seed: u64,
    next: u64,
    random: SplitMix,
}

impl Offsets {
    /// Visits the whole blocks of the first `set_bytes` of a file; at least one.
    pub fn new(access: Access, set_bytes: u64, block_bytes: u64, seed: u64) -> Self {
        let blocks = (set_bytes / block_bytes).max(1);
        let bits = blocks.next_power_of_two().trailing_zeros().max(1);
        Self { access, block_bytes, blocks, bits, seed, next: 0, random: SplitMix(seed) }
    }

    /// Returns how many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the next offset in bytes.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "there is always a next one")]
    pub fn next(&mut self) -> u64 {
        if self.access == Access::Uniform {
            return self.random.next() % self.blocks * self.block_bytes;
        }
        loop {
            let index = self.next;
            self.next = (self.next + 1) & ((1 << self.bits) - 1);
            let block = match self.access {
                Access::Random => permute(index, self.bits, self.seed),
                Access::Uniform | Access::Sequential => index,
            };
            if block < self.blocks {
                return block * self.block_bytes;
            }
        }
    }
}

/// A bijection on `bits` bits: each step can be undone.
#[inline]
pub fn permute(index: u64, bits: u32, seed: u64) -> u64 {
    let mask = (1 << bits) - 1;
    let half = bits.div_ceil(2);
    let mut x = index ^ (seed & mask);
    for factor in [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        x = x.wrapping_mul(factor) & mask;
        x ^= x >> half;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_visited_once_a_lap() {
        for (blocks, seed) in [(1, 1), (2, 5), (1000, 7), (4096, 3)] {
            let mut offsets = Offsets::new(Access::Random, blocks * 512 + 100, 512, seed);
            for _lap in 0..2 {
                let mut seen: Vec<u64> = (0..blocks).map(|_| offsets.next() / 512).collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..blocks), "{blocks} blocks");
            }
        }
    }

    #[test]
    fn random_offsets_do_not_ascend() {
        let mut offsets = Offsets::new(Access::Random, 1 << 20, 4096, 1);
        let order: Vec<u64> = (0..256).map(|_| offsets.next()).collect();
        let ascents = order.windows(2).filter(|pair| pair[1] == pair[0] + 4096).count();
        assert!(ascents < 16, "{ascents}");
    }
}
