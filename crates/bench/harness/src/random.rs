//! Seeded random numbers, so that a run can be repeated.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct SplitMix(pub u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix {
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        let bits = at(self.0, 0);
        self.0 = self.0.wrapping_add(STEP);
        bits
    }

    /// `bound` must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Returns the number at place `index` of the sequence that `seed` begins.
pub fn at(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(STEP.wrapping_mul(index.wrapping_add(1)));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
