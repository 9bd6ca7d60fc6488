//! Random numbers from a seed.

use core::ops::RangeInclusive;

/// A generator of 64-bit numbers, the same for the same seed on every machine.
///
/// Source: xoshiro256++ 1.0 and splitmix64, Blackman and Vigna, <https://prng.di.unimi.it>.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

/// The probability 1; chances are in parts per million.
pub(crate) const CERTAIN_PPM: u32 = 1_000_000;

impl Prng {
    /// Makes a generator; any seed is as good as any other.
    pub fn new(mut seed: u64) -> Prng {
        Prng { state: core::array::from_fn(|_| splitmix(&mut seed)) }
    }

    /// Makes a generator whose numbers are independent of this one's next numbers.
    #[must_use]
    pub fn fork(&mut self) -> Prng {
        Prng::new(self.next_u64())
    }

    /// Draws any number.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let drawn = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// Draws a number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product; its bias is below 2^-32 if `end` is below 2^32.
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Draws an index below `len`; 0 if there is none.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Draws a number of `range`.
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below((range.end() - range.start()).saturating_add(1))
    }

    /// Returns `true` with a probability of `ppm` in a million. Draws one number whatever `ppm` is:
    /// switching a fault off does not shift later draws.
    pub fn chance(&mut self, ppm: u32) -> bool {
        self.below(u64::from(CERTAIN_PPM)) < u64::from(ppm)
    }

    /// Draws an index, each with a probability in proportion to its weight; 0 if all weights are 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut drawn = self.below(sum);
        for (index, weight) in weights.iter().enumerate() {
            if drawn < u64::from(*weight) {
                return index;
            }
            drawn -= u64::from(*weight);
        }
        0
    }

    /// Draws a chance for a swarm: half of the time 0, else up to `ppm_max`, small values as often
    /// as large ones.
    ///
    /// Turning some kinds off and the others to extreme rates reaches states that moderate rates of
    /// all kinds rarely reach. Source: Groce et al., "Swarm testing", ISSTA 2012.
    pub fn swarm_ppm(&mut self, ppm_max: u32) -> u32 {
        let off = self.chance(CERTAIN_PPM / 2);
        let bits = self.below(u64::from(ppm_max.max(1).ilog2()) + 1);
        if off { 0 } else { ppm_max >> bits }
    }

    /// Makes about a third of the weights 0, and others up to four times as large.
    pub fn swarm(&mut self, weights: &mut [u32]) {
        for weight in weights {
            *weight = if self.chance(350_000) { 0 } else { *weight << self.index(3) };
        }
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }
}

fn splitmix(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*seed)
}

/// Scrambles a number; different numbers stay different.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // The first outputs of xoshiro256++ for the state 1, 2, 3, 4.
        let mut prng = Prng { state: [1, 2, 3, 4] };
        let drawn: [u64; 4] = core::array::from_fn(|_| prng.next_u64());
        assert_eq!(drawn, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
        // The first output of splitmix64 for the seed 0.
        assert_eq!(splitmix(&mut 0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_its_ends() {
        let mut prng = Prng::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[prng.range(3..=7) as usize - 3] += 1;
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert_eq!(prng.below(0), 0);
        assert!(!prng.chance(0) && prng.chance(CERTAIN_PPM));
    }

    #[test]
    fn weights_decide_how_often() {
        let mut prng = Prng::new(2);
        let mut seen = [0; 3];
        for _ in 0..4000 {
            seen[prng.weighted(&[1, 0, 3])] += 1;
        }
        assert_eq!(seen[1], 0);
        assert!((900..1100).contains(&seen[0]), "{seen:?}");
    }

    #[test]
    fn swarm_is_off_half_of_the_time() {
        let mut prng = Prng::new(3);
        let off = (0..1000).filter(|_| prng.swarm_ppm(1000) == 0).count();
        assert!((450..550).contains(&off), "{off}");
    }

    #[test]
    fn a_swarm_has_some_kinds_off_and_others_more_often() {
        let mut weights = [3; 3_000];
        Prng::new(5).swarm(&mut weights);
        let times = |weight| weights.iter().filter(|it| **it == weight).count();
        assert!((950..1_150).contains(&times(0)), "{}", times(0));
        assert!([3, 6, 12].into_iter().all(|it| times(it) > 500));
    }

    #[test]
    fn shuffle_keeps_all_items() {
        let mut items: Vec<u32> = (0..50).collect();
        Prng::new(4).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
