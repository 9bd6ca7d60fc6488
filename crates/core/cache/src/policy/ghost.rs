//! Recently evicted folios (the ghost queue): hashes, in memory of fixed size.

const WAYS: usize = 8;

/// The hashes of the folios that left last, up to a number of frames.
///
/// A table of buckets with eight places of eight bytes. The age of a hash is the number of frames
/// that came after it. In a full bucket the oldest hash is replaced, so a few are forgotten early.
/// Two folios with the same hash count as one, which happens once in 2^32 / places.
#[derive(Debug)]
pub struct Ghost {
    buckets: Box<[[Place; WAYS]]>,
    /// Frames remembered so far; wraps.
    clock: u32,
    frames_max: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    hash: u32,
    /// The clock when it came; 0 is an empty place.
    at: u32,
}

impl Ghost {
    /// Makes an empty memory for `frames_max` frames: 12 bytes for each, with places for half as
    /// many again, so that few buckets overflow.
    pub fn new(frames_max: u32) -> Ghost {
        // Below half of the clock's range, so that ages never wrap.
        let frames_max = frames_max.clamp(1, u32::MAX / 4);
        let buckets = (frames_max as usize * 3 / 2).div_ceil(WAYS);
        let buckets = vec![[Place::default(); WAYS]; buckets].into_boxed_slice();
        Ghost { buckets, clock: 1, frames_max }
    }

    /// Remembers a hash of `frames` frames.
    pub fn insert(&mut self, hash: u32, frames: u16) {
        self.clock = self.clock.wrapping_add(u32::from(frames)).max(1);
        let clock = self.clock;
        let bucket = self.bucket(hash);
        let age =
            |place: &Place| if place.at == 0 { u32::MAX } else { clock.wrapping_sub(place.at) };
        let same = bucket.iter().position(|place| place.at != 0 && place.hash == hash);
        let oldest = (0..WAYS).max_by_key(|place| age(&bucket[*place])).unwrap_or(0);
        bucket[same.unwrap_or(oldest)] = Place { hash, at: clock };
    }

    /// Returns `true` if the hash is in the list, and removes it.
    pub fn take(&mut self, hash: u32) -> bool {
        let (clock, frames_max) = (self.clock, self.frames_max);
        let mut places = self.bucket(hash).iter_mut();
        let Some(place) = places.find(|place| place.at != 0 && place.hash == hash) else {
            return false;
        };
        let age = clock.wrapping_sub(core::mem::take(place).at);
        age < frames_max
    }

    fn bucket(&mut self, hash: u32) -> &mut [Place; WAYS] {
        let index = (u64::from(hash) * self.buckets.len() as u64) >> 32;
        &mut self.buckets[index as usize]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::hash;

    #[test]
    fn those_that_left_last_are_remembered_and_older_ones_are_not() {
        let mut ghost = Ghost::new(1000);
        (0..5000).for_each(|n| ghost.insert(hash(1, n), 1));
        assert!((0..4000).all(|n| !ghost.take(hash(1, n))));
        let found = (4001..5000).filter(|n| ghost.take(hash(1, *n))).count();
        assert!(found > 950, "{found} of 999");
        assert!((4001..5000).all(|n| !ghost.take(hash(1, n))), "taken once");
    }

    #[test]
    fn large_folios_push_out_as_many_frames_as_they_have() {
        let mut ghost = Ghost::new(1000);
        ghost.insert(7, 1);
        (0..16).for_each(|n| ghost.insert(hash(2, n), 64));
        assert!(!ghost.take(7));
    }

    #[test]
    fn ages_survive_the_wrap_of_the_clock() {
        let mut ghost = Ghost::new(1000);
        ghost.clock = u32::MAX - 2;
        (0..10).for_each(|n| ghost.insert(hash(3, n), 1));
        assert!((0..10).all(|n| ghost.take(hash(3, n))));
    }
}
