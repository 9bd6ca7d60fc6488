//! The fault model: the faults that this device may make, and those that it never makes.
//!
//! While the power is on: the device draws the fate of a request (error, short, stuck or none) when
//! it accepts the request, and the other faults when they may hit.
//!
//! ```text
//! error        EIO, once. A failed write may have changed any of its sectors (`partial`);
//!              after a failed flush nothing new is promised, and a later flush that succeeds
//!              need not cover what the failed one should have (`forget`).
//! n-th         one request, counted from 0 over all queues, fails with a given errno.
//! bad sector   reads and writes of it fail for ever with EIO, or end before it.
//! short        a read or write ends early: at the end of a sector, or at any byte (`short_odd`).
//! stuck        the request completes only after `cancel`, `release_stuck` or a power cut.
//! uncancelled  a request being served completes in spite of `cancel`.
//! full         writes into holes beyond the capacity come short, then fail with ENOSPC.
//! order        requests complete as the delay model says; at the same instant, in drawn order.
//! ```
//!
//! At a power cut the device keeps data covered by a successful flush, and acknowledged writes with
//! RWF_DSYNC or RWF_SYNC. A flush covers the requests acknowledged before it was committed. For all
//! other data, file by file:
//!
//! ```text
//! lost         an acknowledged write may be missing.
//! reorder      which of them are missing is drawn for each alone, and those left may have been
//!              carried out in any order. Without `reorder` those left are the first ones.
//! torn         of a write, acknowledged or being served, any of its sectors may be left.
//! sizes        growth, truncation and holes are kept in order, as by a journal: the first so
//!              many. If a truncation or hole is lost, so are all later ones. A size that is
//!              kept does not keep the data: what is missing reads as zeroes or as it was.
//! ```
//!
//! Never: a sector that is half old and half new (except at the end of a short write at an odd
//! byte); data that was never written there; a change of durable data; a request that completes
//! twice, or never unless it is stuck.
//!
//! [`Lies`] break these promises, for tests that must fail.

use crate::prng::{CERTAIN_PPM, Prng};
use nowait_sys::Errno;

/// The frequency of each fault, in parts per million of the requests that it can affect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Reads that fail with EIO.
    pub read_error_ppm: u32,
    /// Writes that fail with EIO.
    pub write_error_ppm: u32,
    /// Flushes that fail with EIO.
    pub flush_error_ppm: u32,
    /// Failed or cancelled writes that have changed some of their sectors.
    pub partial_ppm: u32,
    /// Unflushed writes that a failed flush drops permanently, though reads still see them.
    pub forget_ppm: u32,
    /// Sectors that can be neither read nor written, chosen by the seed.
    pub bad_sector_ppm: u32,
    /// Reads and writes that end early at the end of a sector.
    pub short_ppm: u32,
    /// Reads and writes that end early at any byte.
    pub short_odd_ppm: u32,
    /// Requests that do not complete by themselves.
    pub stuck_ppm: u32,
    /// Requests being served that cannot be cancelled.
    pub uncancelled_ppm: u32,
    /// Unflushed writes lost in a power cut; without `reorder`: files that lose some.
    pub lost_ppm: u32,
    /// Writes torn in a power cut.
    pub torn_ppm: u32,
    /// Unflushed writes reach the medium in any order.
    pub reorder: bool,
    /// The request that fails, counted from 0 in the order of acceptance, and its errno.
    pub fail: Option<(u64, Errno)>,
    /// Most bytes that all files can hold, counted in whole sectors; `None`: no limit.
    pub capacity_bytes: Option<u64>,
    /// The promise that the device breaks.
    pub lies: Option<Lies>,
}

/// A promise that a device breaks; the tests must detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Flushes succeed and make nothing durable; so do writes with RWF_DSYNC or RWF_SYNC.
    IgnoreFlush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Normal,
    Fail(Errno),
    Short(usize),
    Stuck,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read(usize),
    Write(usize),
    Flush,
    Poll,
}

impl Faults {
    /// Returns the settings of a device without faults whose cache survives a power cut.
    pub const fn none() -> Faults {
        Faults {
            read_error_ppm: 0,
            write_error_ppm: 0,
            flush_error_ppm: 0,
            partial_ppm: 0,
            forget_ppm: 0,
            bad_sector_ppm: 0,
            short_ppm: 0,
            short_odd_ppm: 0,
            stuck_ppm: 0,
            uncancelled_ppm: 0,
            lost_ppm: 0,
            torn_ppm: 0,
            reorder: false,
            fail: None,
            capacity_bytes: None,
            lies: None,
        }
    }

    /// Returns a device without faults whose volatile cache loses much in a power cut.
    pub const fn volatile_cache() -> Faults {
        let half = CERTAIN_PPM / 2;
        Faults { lost_ppm: half, torn_ppm: half, reorder: true, ..Faults::none() }
    }

    /// Returns [`Faults::volatile_cache`] with a failure of the `n`-th request, counted from 0.
    pub const fn fail_nth(n: u64, errno: Errno) -> Faults {
        Faults { fail: Some((n, errno)), ..Faults::volatile_cache() }
    }

    /// Draws a device: some faults off, the others at extreme rates. The drawn device never lies
    /// and is never full.
    ///
    /// `stuck_ppm` is 0, so that a test need not cancel requests.
    pub fn swarm(prng: &mut Prng) -> Faults {
        Faults {
            read_error_ppm: prng.swarm_ppm(200_000),
            write_error_ppm: prng.swarm_ppm(200_000),
            flush_error_ppm: prng.swarm_ppm(200_000),
            partial_ppm: prng.swarm_ppm(CERTAIN_PPM),
            forget_ppm: prng.swarm_ppm(CERTAIN_PPM),
            bad_sector_ppm: prng.swarm_ppm(20_000),
            short_ppm: prng.swarm_ppm(300_000),
            short_odd_ppm: prng.swarm_ppm(100_000),
            stuck_ppm: 0,
            uncancelled_ppm: prng.swarm_ppm(CERTAIN_PPM),
            lost_ppm: prng.swarm_ppm(CERTAIN_PPM),
            torn_ppm: prng.swarm_ppm(CERTAIN_PPM),
            reorder: prng.chance(CERTAIN_PPM / 2),
            fail: None,
            capacity_bytes: None,
            lies: None,
        }
    }

    pub(crate) fn fate(
        &self,
        number: u64,
        kind: Kind,
        sector_bytes: usize,
        prng: &mut Prng,
    ) -> Fate {
        // Makes all draws for every request: see `Prng::chance`.
        let fails = prng.chance(self.error_ppm(kind));
        let [short, odd] = [self.short_ppm, self.short_odd_ppm].map(|ppm| prng.chance(ppm));
        let stuck = prng.chance(self.stuck_ppm);
        let drawn = prng.next_u64();
        let len = match kind {
            Kind::Read(len) | Kind::Write(len) => len,
            Kind::Flush | Kind::Poll => 0,
        };
        match self.fail {
            Some((n, errno)) if n == number => return Fate::Fail(errno),
            _ => {}
        }
        if stuck {
            Fate::Stuck
        } else if fails {
            Fate::Fail(Errno::IO)
        } else if odd && len > 1 {
            Fate::Short(1 + drawn as usize % (len - 1))
        } else if short && len > sector_bytes {
            Fate::Short(sector_bytes * (1 + drawn as usize % ((len - 1) / sector_bytes)))
        } else {
            Fate::Normal
        }
    }

    fn error_ppm(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Read(_) => self.read_error_ppm,
            Kind::Write(_) => self.write_error_ppm,
            Kind::Flush => self.flush_error_ppm,
            Kind::Poll => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_nth_request_fails() {
        let faults = Faults::fail_nth(3, Errno::NOSPC);
        let mut prng = Prng::new(1);
        let fates: Vec<Fate> =
            (0..6).map(|n| faults.fate(n, Kind::Write(512), 512, &mut prng)).collect();
        assert_eq!(fates[3], Fate::Fail(Errno::NOSPC));
        assert_eq!(fates.iter().filter(|fate| **fate == Fate::Normal).count(), 5);
    }

    #[test]
    fn short_transfers_are_shorter_and_not_empty() {
        let aligned = Faults { short_ppm: CERTAIN_PPM, ..Faults::none() };
        let odd = Faults { short_odd_ppm: CERTAIN_PPM, ..Faults::none() };
        let mut prng = Prng::new(2);
        for len in 513..3000 {
            let Fate::Short(bytes) = aligned.fate(0, Kind::Read(len), 512, &mut prng) else {
                panic!("{len} bytes are not cut")
            };
            assert!(bytes > 0 && bytes < len && bytes % 512 == 0, "{bytes} of {len}");
            let Fate::Short(bytes) = odd.fate(0, Kind::Write(len), 512, &mut prng) else {
                panic!("{len} bytes are not cut")
            };
            assert!(bytes > 0 && bytes < len, "{bytes} of {len}");
        }
        assert_eq!(aligned.fate(0, Kind::Read(512), 512, &mut prng), Fate::Normal);
        assert_eq!(odd.fate(0, Kind::Read(1), 512, &mut prng), Fate::Normal);
    }

    #[test]
    fn a_fault_switched_off_does_not_shift_the_others() {
        let both = Faults { write_error_ppm: 300_000, short_ppm: 300_000, ..Faults::none() };
        let one = Faults { short_ppm: 0, ..both.clone() };
        let (mut a, mut b) = (Prng::new(3), Prng::new(3));
        for n in 0..500 {
            let fate = both.fate(n, Kind::Write(4096), 512, &mut a);
            let expected = if matches!(fate, Fate::Short(_)) { Fate::Normal } else { fate };
            assert_eq!(one.fate(n, Kind::Write(4096), 512, &mut b), expected);
        }
    }
}
