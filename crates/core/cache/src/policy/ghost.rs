//! The ghost queue: hashes of recently evicted folios, in a table of fixed size.

const WAYS: usize = 8;

/// The hashes that were inserted last, up to a total of `frames_max` frames.
///
/// The table consists of buckets with eight places. If a bucket is full, `insert` replaces its
/// oldest hash, so the table forgets a few hashes early. Folios with equal hashes are not told
/// apart: about one of 2^32 / places look-ups finds the hash of another folio.
#[derive(Debug)]
pub struct Ghost {
    buckets: Box<[[Place; WAYS]]>,
    /// Frames inserted so far, plus 1; it wraps and skips 0.
    clock: u32,
    frames_max: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    hash: u32,
    /// The clock when the hash was inserted; 0 marks an empty place.
    at: u32,
}

impl Ghost {
    /// Makes an empty table with 1.5 places of 8 bytes for each of `frames_max` frames, so that few
    /// buckets overflow.
    pub fn new(frames_max: u32) -> Ghost {
        // At most a quarter of the clock's range: the age of a hash passes `frames_max` long before
        // the clock wraps.
        let frames_max = frames_max.clamp(1, u32::MAX / 4);
        let buckets = (frames_max as usize * 3 / 2).div_ceil(WAYS);
        let buckets = vec![[Place::default(); WAYS]; buckets].into_boxed_slice();
        Ghost { buckets, clock: 1, frames_max }
    }

    /// Inserts the hash of a folio of `frames` frames.
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

    /// Removes a hash. Returns `true` if the table had it and fewer than `frames_max` frames were
    /// inserted after it.
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
