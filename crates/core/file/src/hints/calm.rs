//! Calm devices: buffered writes to them have not blocked lately.
//!
//! A buffered write copies into the page cache, and blocks only if the kernel throttles the writer,
//! reads a page first, or waits for the journal. For 5 ms after a write blocked for long, submit
//! tries writes to the device only with RWF_NOWAIT, or hands them over. This pause doubles, up to
//! 1.3 s, each time a write blocks again.
//!
//! A write may also take long because another program had the processor. So after a long write the
//! next ones are *suspect*: the engine counts how often the writing thread sleeps in them. Writers
//! of one file wait for each other, so beside other writes to the device only a much longer write
//! counts as long.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

const SLOTS: usize = 64;
const WRITERS: usize = 64;
/// A write is long if it takes longer than this plus the time to copy its bytes.
const LONG_NS: u64 = 1_000_000;
/// The limit instead of [`LONG_NS`] beside other writes to the device: the threads of these may
/// hold a lock without a processor.
const LONG_BESIDE_OTHERS_NS: u64 = 20_000_000;
/// The time to copy a KiB on a slow processor.
const COPY_NS_PER_KIB: u64 = 1_000;
const PAUSE_NS: u64 = 5_000_000;
/// The most doublings of [`PAUSE_NS`], which make 1.3 s.
const DOUBLINGS_MAX: u64 = 8;
/// The number of suspect writes after a long one. A writer that is throttled is held up at least
/// every 32 pages (`nr_dirtied_pause`, mm/page-writeback.c).
const SUSPECTS: u64 = 63;

/// A wrong record costs a write that blocks in submit, or one that submit hands over without need.
#[derive(Debug)]
pub(crate) struct Calm {
    pauses: [AtomicU64; SLOTS],
    writers: [Writer; WRITERS],
}

/// The writes of a context, on a cache line of its own. Threads of other contexts read this record
/// only after a long write.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Writer {
    writes: AtomicU32,
    device: AtomicU8,
    ended_ns: AtomicU64,
}

/// A slot for devices; several devices may share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device(u8);

impl Device {
    pub(crate) fn of(dev: u64) -> Device {
        Device(((dev ^ dev >> 8) as usize % SLOTS) as u8)
    }

    pub(super) fn at(index: u8) -> Device {
        Device(index % SLOTS as u8)
    }

    pub(super) fn index(self) -> u8 {
        self.0
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) bytes: usize,
    pub(crate) took_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pause {
    until_ns: u64,
    doublings: u64,
    suspects: u64,
}

impl Pause {
    /// The bits of the word that do not hold the time: four for doublings, six for suspects.
    const BITS: u32 = 10;

    fn of(word: u64) -> Pause {
        let until_ns = word >> Pause::BITS << Pause::BITS;
        Pause { until_ns, doublings: word >> 6 & 0xf, suspects: word & 0x3f }
    }

    fn word(self) -> u64 {
        self.until_ns >> Pause::BITS << Pause::BITS | self.doublings << 6 | self.suspects
    }

    /// Returns the pause after a write that has ended at `now_ns`. `others` returns whether other
    /// writes went to the device meanwhile; `blocked` returns whether the thread slept in the
    /// write, if that is known.
    fn after(
        self,
        write: Write,
        others: impl FnOnce() -> bool,
        blocked: impl FnOnce() -> Option<bool>,
        now_ns: u64,
    ) -> Pause {
        let copy_ns = write.bytes as u64 / 1024 * COPY_NS_PER_KIB;
        let length_ns = PAUSE_NS << self.doublings;
        let suspects = self.suspects.saturating_sub(1);
        let exceeds = |long_ns| write.took_ns > long_ns + copy_ns;
        let is_long = exceeds(LONG_BESIDE_OTHERS_NS) || exceeds(LONG_NS) && !others();
        if !is_long {
            // One doubling less when the device has been calm for longer than its next pause would
            // be.
            let recovers = self.doublings > 0 && now_ns > self.until_ns + length_ns;
            return match recovers {
                true => Pause { until_ns: now_ns, doublings: self.doublings - 1, suspects },
                false => Pause { suspects, ..self },
            };
        }
        match blocked() {
            Some(true) => {
                let doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
                Pause { until_ns: now_ns + length_ns, doublings, suspects: SUSPECTS }
            }
            Some(false) | None => Pause { suspects: SUSPECTS, ..self },
        }
    }
}

impl Default for Calm {
    fn default() -> Calm {
        Calm {
            pauses: [const { AtomicU64::new(0) }; SLOTS],
            writers: core::array::from_fn(|_| Writer::default()),
        }
    }
}

impl Calm {
    pub(crate) fn is_calm(&self, device: Device, now_ns: impl FnOnce() -> u64) -> bool {
        let until_ns = Pause::of(self.slot(device).load(Relaxed)).until_ns;
        until_ns == 0 || until_ns <= now_ns()
    }

    /// Returns `true` if the writer must count how often it sleeps in its next write.
    pub(crate) fn is_suspect(&self, device: Device) -> bool {
        Pause::of(self.slot(device).load(Relaxed)).suspects > 0
    }

    pub(crate) fn begins(&self, number: usize, device: Device) {
        let writer = self.writer(number);
        writer.writes.fetch_add(1, Relaxed);
        writer.device.store(device.0, Relaxed);
    }

    pub(crate) fn took(
        &self,
        (number, device): (usize, Device),
        write: Write,
        blocked: impl FnOnce() -> Option<bool>,
        now_ns: u64,
    ) {
        let writer = self.writer(number);
        writer.writes.fetch_sub(1, Relaxed);
        let slot = self.slot(device);
        let before = Pause::of(slot.load(Relaxed));
        let others = || self.writes_since(device, now_ns.saturating_sub(write.took_ns));
        let after = before.after(write, others, blocked, now_ns);
        if after != before {
            slot.store(after.word(), Relaxed);
        }
        writer.ended_ns.store(now_ns, Relaxed);
    }

    fn writes_since(&self, device: Device, then_ns: u64) -> bool {
        let writes = |it: &Writer| {
            it.device.load(Relaxed) == device.0
                && (it.writes.load(Relaxed) > 0 || it.ended_ns.load(Relaxed) > then_ns)
        };
        self.writers.iter().any(writes)
    }

    fn writer(&self, number: usize) -> &Writer {
        &self.writers[number % WRITERS]
    }

    fn slot(&self, device: Device) -> &AtomicU64 {
        &self.pauses[usize::from(device.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Write = Write { bytes: 4096, took_ns: 3_000 };
    const LONG: Write = Write { bytes: 4096, took_ns: 20_000_000 };

    #[test]
    fn the_pause_doubles_with_each_write_that_blocks_and_shrinks_while_it_is_calm() {
        // Each row: the duration of a write at the end of the last pause, whether the thread slept
        // in it, and the length of the next pause.
        let table = [
            (SHORT, None, 0),
            (LONG, None, 0),
            (LONG, Some(false), 0),
            (LONG, Some(true), PAUSE_NS),
            (LONG, Some(true), 2 * PAUSE_NS),
            (SHORT, Some(false), 0),
            (LONG, Some(true), 4 * PAUSE_NS),
        ];
        let (mut pause, mut now) = (Pause::default(), 1 << 30);
        for (step, (write, blocked, length)) in table.into_iter().enumerate() {
            pause = pause.after(write, || false, || blocked, now);
            assert_eq!(pause.until_ns.saturating_sub(now), length, "step {step}: {pause:?}");
            assert_eq!(pause.suspects == SUSPECTS, write.took_ns == LONG.took_ns, "step {step}");
            now = now.max(pause.until_ns);
        }
        for _ in 0..64 {
            now += PAUSE_NS << DOUBLINGS_MAX;
            pause = pause.after(SHORT, || false, || None, now);
        }
        assert_eq!((pause.doublings, pause.suspects), (0, 0));
        for _ in 0..64 {
            pause = pause.after(LONG, || false, || Some(true), now);
        }
        assert_eq!(pause.until_ns - now, PAUSE_NS << DOUBLINGS_MAX, "it has a bound");
        assert_eq!(Pause::of(pause.word()).doublings, DOUBLINGS_MAX);
    }

    #[test]
    fn a_long_copy_is_not_a_write_that_blocked() {
        let (pause, copy) = (Pause::default(), Write { bytes: 4 << 20, took_ns: 4_000_000 });
        assert_eq!(pause.after(copy, || false, || Some(true), 1 << 30), pause);
    }

    #[test]
    fn a_writer_that_waits_for_others_is_not_taken_for_one_that_blocks() {
        let pause = Pause::default();
        let beside =
            |took_ns| pause.after(Write { took_ns, ..LONG }, || true, || Some(true), 1 << 40);
        assert_eq!(beside(19_000_000), pause);
        assert_ne!(beside(21_000_000), pause);
    }

    #[test]
    fn a_write_of_another_context_is_seen_if_it_goes_on_or_has_ended_since() {
        let calm = Calm::default();
        let (one, other) = (Device::of(1), Device::of(2));
        let seen = |device| [100, 200].map(|then| calm.writes_since(device, then));
        assert_eq!(seen(one), [false; 2]);
        calm.begins(7, one);
        assert_eq!((seen(one), seen(other)), ([true; 2], [false; 2]));
        calm.took((7, one), SHORT, || None, 150);
        assert_eq!((seen(one), seen(other)), ([true, false], [false; 2]));
    }

    #[test]
    fn a_device_that_blocks_is_not_calm_and_others_are() {
        let calm = Calm::default();
        let (one, other, now) = (Device::of(1), Device::of(2), 1 << 40);
        calm.begins(1, one);
        calm.took((1, one), LONG, || None, now);
        calm.begins(1, one);
        assert!(calm.is_calm(one, || now) && calm.is_suspect(one) && !calm.is_suspect(other));
        let now = now + LONG.took_ns;
        calm.took((1, one), LONG, || Some(true), now);
        assert!(!calm.is_calm(one, || now + PAUSE_NS - 2048) && calm.is_calm(other, || now));
        assert!(calm.is_calm(one, || now + PAUSE_NS));
    }
}
