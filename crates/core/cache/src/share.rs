//! Limits on the frames of a pool that hold data to be written, or that reads are filling.
//!
//! They keep a device that fails, is full or hangs from stopping the files of other devices. Data
//! that this device cannot write occupies a part of the pool, and the rest works as a smaller pool.
//!
//! A frame has failed if the last writeback of its folio has failed. All other frames are the pool
//! of the writers.
//!
//! * If more than half of this pool is dirty, a writer waits while its device has more dirty frames
//!   than a quarter of what the other devices leave of the pool.
//! * If more than seven eighths of all frames are dirty, a writer waits while its device has a
//!   dirty frame that has not failed. So devices that hang leave frames for reads.
//! * A write to a file with failed frames fails instead of waiting. It also fails while the file
//!   has more dirty frames than half of what the failures of other devices leave.
//! * If more than three quarters of all frames have failed, the cache drops pages that fail for the
//!   first time. The kernel's page cache drops failed pages, too.
//! * If reads fill more than a quarter of all frames, a reader waits while the reads of its device
//!   fill more than half of what dirty frames and the reads of other devices leave.
//!
//! Dropped data are lost: each later sync of the file that needs a flush reports that, until
//! [`forgive`](crate::CachedFile::forgive).

use crate::mistake::{Mistake, makes};
use crate::primitives::{Arc, AtomicU32, AtomicU64, Mutex, Relaxed, SeqCst};
use std::sync::Weak;

#[derive(Debug)]
pub(crate) struct Dirt {
    /// Frames that are dirty or under writeback.
    dirty: AtomicU64,
    /// The part of `dirty` whose last writeback has failed.
    failed: AtomicU64,
    writing: AtomicU64,
    /// Frames that reads are filling; 0 for a file. On a cache line of its own, because writers
    /// read the other counts for each page.
    reading: Apart,
}

#[derive(Debug)]
#[repr(align(64))]
struct Apart(AtomicU64);

impl Default for Dirt {
    fn default() -> Dirt {
        let none = || AtomicU64::new(0);
        let reading = Apart(none());
        Dirt { dirty: none(), failed: none(), writing: none(), reading }
    }
}

impl Dirt {
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Relaxed)
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    pub(crate) fn writing(&self) -> u64 {
        self.writing.load(Relaxed)
    }

    fn reading(&self) -> u64 {
        self.reading.0.load(Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Device {
    number: u64,
    pub(crate) dirt: Dirt,
    /// Bios in flight. Both counts change under the lock of the I/Os.
    fills: AtomicU32,
    others: AtomicU32,
}

/// The most bios of each kind in flight on one device. A device that hangs keeps places of a queue,
/// and threads of the kernel and the engine; the limit leaves some to other devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightMax {
    /// Reads.
    pub reads: u32,
    /// Writes and flushes.
    pub writes: u32,
}

impl InFlightMax {
    /// No limit.
    pub const NONE: InFlightMax = InFlightMax { reads: u32::MAX, writes: u32::MAX };
}

impl Device {
    fn new(number: u64) -> Device {
        let none = || AtomicU32::new(0);
        Device { number, dirt: Dirt::default(), fills: none(), others: none() }
    }

    /// Counts a bio in flight. Returns `false`, and counts nothing, if the device is at the limit
    /// of this kind.
    pub(crate) fn begin(&self, is_fill: bool, most: InFlightMax) -> bool {
        let (count, most) = match is_fill {
            true => (&self.fills, most.reads),
            false => (&self.others, most.writes),
        };
        let now = count.load(Relaxed);
        let may_begin = now < most;
        count.store(now + u32::from(may_begin), Relaxed);
        may_begin
    }

    pub(crate) fn end(&self, is_fill: bool) {
        let count = if is_fill { &self.fills } else { &self.others };
        count.store(count.load(Relaxed) - 1, Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Devices(Mutex<Vec<Weak<Device>>>);

impl Default for Devices {
    fn default() -> Devices {
        Devices(Mutex::new(Vec::new()))
    }
}

impl Devices {
    /// All files in the cache on that device share the result.
    pub(crate) fn with_number(&self, number: u64) -> Arc<Device> {
        let mut devices = self.0.lock();
        let known = devices.iter().filter_map(Weak::upgrade).find(|device| device.number == number);
        known.unwrap_or_else(|| {
            devices.retain(|device| device.strong_count() > 0);
            let device = Arc::new(Device::new(number));
            devices.push(Arc::downgrade(&device));
            device
        })
    }
}

/// The counts of a file, of its device and of the cache.
#[derive(Clone, Copy)]
pub(crate) struct Counts<'a>(pub(crate) [&'a Dirt; 3]);

impl Counts<'_> {
    /// If this is `true`, the writer waits, or fails if its file has failed frames.
    #[inline]
    pub(crate) fn must_wait(self, total: u32) -> bool {
        // The usual case, which a writer checks for each page, takes two loads instead of six.
        let Counts([.., all]) = self;
        let is_clean_enough = all.failed() == 0 && all.dirty() <= u64::from(total) / 2;
        !is_clean_enough && Shares::of(total, self).must_wait()
    }

    #[inline]
    pub(crate) fn must_wait_to_read(self, total: u32) -> bool {
        let Counts([_, device, all]) = self;
        // The usual case takes one load instead of four.
        let is_little = all.reading() <= u64::from(total) / 4;
        !is_little && reads_too_much(total, device.reading(), all.reading(), all.dirty())
    }

    /// The caller holds the lock of the I/Os.
    pub(crate) fn reads(self, frames: u64) {
        let Counts([_, of @ ..]) = self;
        of.iter().for_each(|dirt| dirt.reading.0.store(dirt.reading() + frames, Relaxed));
    }

    /// The caller holds the lock of the I/Os, and afterwards kicks the operations that wait.
    pub(crate) fn has_read(self, frames: u64) {
        let Counts([_, of @ ..]) = self;
        of.iter().for_each(|dirt| _ = dirt.reading.0.fetch_sub(frames, SeqCst));
    }

    pub(crate) fn dirtied(self, frames: u64) {
        self.0.iter().for_each(|dirt| _ = dirt.dirty.fetch_add(frames, Relaxed));
    }

    /// The caller then kicks the operations that wait.
    pub(crate) fn cleaned(self, frames: u64) {
        // SeqCst: this change comes before the check for operations that wait (`Room::notice`).
        self.0.iter().for_each(|dirt| _ = dirt.dirty.fetch_sub(frames, SeqCst));
    }

    pub(crate) fn begun(self, frames: u64) {
        self.0.iter().for_each(|dirt| _ = dirt.writing.fetch_add(frames, Relaxed));
    }

    pub(crate) fn ended(self, frames: u64) {
        self.0.iter().for_each(|dirt| _ = dirt.writing.fetch_sub(frames, Relaxed));
    }

    /// The caller has not counted these frames as failed before.
    pub(crate) fn failed(self, frames: u64) {
        self.0.iter().for_each(|dirt| _ = dirt.failed.fetch_add(frames, SeqCst));
    }

    pub(crate) fn recovered(self, frames: u64) {
        self.0.iter().for_each(|dirt| _ = dirt.failed.fetch_sub(frames, SeqCst));
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) total: u64,
    /// The number of dirty frames, and the number of failed ones among them.
    pub(crate) all: (u64, u64),
    pub(crate) device: (u64, u64),
    pub(crate) file: (u64, u64),
}

impl Shares {
    pub(crate) fn of(total: u32, Counts([file, device, all]): Counts<'_>) -> Shares {
        let [file, device, all] = [file, device, all].map(|dirt| (dirt.dirty(), dirt.failed()));
        Shares { total: u64::from(total), all, device, file }
    }

    pub(crate) fn must_wait(&self) -> bool {
        let has_failed = self.file.1 > 0;
        has_failed && self.file.0 > self.left_by_failures() / 2 || self.is_too_dirty()
    }

    /// If this is `true`, the cache drops folios that fail for the first time.
    pub(crate) fn drops(&self) -> bool {
        self.all.1 > self.total / 4 * 3
    }

    /// The frames of the pool that the failures of other devices leave.
    fn left_by_failures(&self) -> u64 {
        self.total.saturating_sub(self.all.1.saturating_sub(self.device.1))
    }

    fn is_too_dirty(&self) -> bool {
        if makes(Mistake::ShareWithSick) {
            return self.all.0 > self.total / 2;
        }
        let unfailed = |(dirty, failed): (u64, u64)| dirty.saturating_sub(failed);
        let (pool, all) = (self.total.saturating_sub(self.all.1), unfailed(self.all));
        let own = unfailed(self.device);
        let left_by_others = pool.saturating_sub(all.saturating_sub(own));
        let is_scarce = self.all.0 > self.total - self.total / 8;
        all > pool / 2 && own > left_by_others / 4 || is_scarce && own > 0
    }
}

fn reads_too_much(total: u32, own: u64, reading: u64, dirty: u64) -> bool {
    let left_by_others = u64::from(total).saturating_sub(dirty + reading.saturating_sub(own));
    own > left_by_others / 2
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type State = [(u64, u64); 3];

    fn shares([all, device, file]: State) -> Shares {
        Shares { total: 64, all, device, file }
    }

    #[test]
    fn a_writer_waits_for_its_own_device_only() {
        let table: &[(State, bool, &str)] = &[
            ([(32, 0), (32, 0), (32, 0)], false, "half of the pool"),
            ([(33, 0), (33, 0), (33, 0)], true, "more"),
            ([(33, 0), (33, 0), (0, 0)], true, "another file of the device"),
            ([(33, 0), (0, 0), (0, 0)], false, "all of it is another device's"),
            ([(41, 0), (8, 0), (8, 0)], true, "and a quarter of the rest its own"),
            ([(40, 0), (7, 0), (7, 0)], false, "and less"),
            ([(33, 33), (33, 33), (33, 33)], true, "none of it can be written"),
            ([(33, 33), (33, 33), (0, 0)], false, "none of another file's"),
            ([(33, 33), (0, 0), (0, 0)], false, "none of another device's"),
            ([(48, 33), (15, 0), (15, 0)], false, "half of what such a device leaves"),
            ([(49, 33), (16, 0), (16, 0)], true, "more than that"),
            ([(20, 20), (20, 20), (20, 20)], false, "the file has a part of its share"),
            ([(57, 20), (1, 0), (0, 0)], true, "nearly all is dirty, something of it its own"),
            ([(57, 20), (0, 0), (0, 0)], false, "and nothing of it"),
        ];
        for (state, expected, what) in table {
            assert_eq!(shares(*state).must_wait(), *expected, "{what}: {state:?}");
        }
    }

    #[test]
    fn the_short_look_says_what_the_long_one_says() {
        const TOTAL: u32 = 6;
        let states = (0..=TOTAL).flat_map(|dirty| (0..=dirty).map(move |failed| (dirty, failed)));
        let states: Vec<(u32, u32)> = states.collect();
        for (file, others) in
            states.iter().flat_map(|file| states.iter().map(move |it| (*file, *it)))
        {
            let dirts = [Dirt::default(), Dirt::default(), Dirt::default()];
            let counts = Counts(dirts.each_ref());
            counts.dirtied(file.0.into());
            counts.failed(file.1.into());
            dirts[2].dirty.fetch_add(others.0.into(), Relaxed);
            dirts[2].failed.fetch_add(others.1.into(), Relaxed);
            let long = Shares::of(TOTAL, counts).must_wait();
            assert_eq!(counts.must_wait(TOTAL), long, "{file:?} {others:?}");
        }
    }

    #[test]
    fn what_fails_is_kept_up_to_a_part_of_the_pool() {
        let drops = |all, device| shares([all, device, device]).drops();
        assert!(!drops((49, 48), (49, 48)) && drops((50, 49), (50, 49)));
        assert!(!drops((57, 48), (1, 0)) && drops((57, 49), (1, 1)));
    }

    #[test]
    fn reads_of_a_device_leave_half_of_what_is_left() {
        assert!(!reads_too_much(64, 32, 32, 0) && reads_too_much(64, 33, 33, 0));
        // Other devices' reads fill 20 frames, and 16 frames are dirty.
        assert!(!reads_too_much(64, 14, 34, 16) && reads_too_much(64, 15, 35, 16));
        assert!(!reads_too_much(64, 0, 64, 64), "the first read of a device passes");
        let dirts = [Dirt::default(), Dirt::default(), Dirt::default()];
        let counts = Counts(dirts.each_ref());
        counts.reads(22);
        assert!(counts.must_wait_to_read(43) && !counts.must_wait_to_read(44));
        counts.has_read(22);
        assert_eq!(dirts.each_ref().map(Dirt::reading), [0; 3]);
    }

    #[test]
    fn a_device_has_so_many_bios_in_flight_of_each_kind() {
        let (device, most) = (Device::new(1), InFlightMax { reads: 1, writes: 2 });
        assert!(device.begin(true, most) && !device.begin(true, most));
        assert!(device.begin(false, most) && device.begin(false, most));
        assert!(!device.begin(false, most));
        device.end(false);
        assert!(device.begin(false, most) && !device.begin(true, most));
        device.end(true);
        assert!(device.begin(true, InFlightMax::NONE));
    }

    #[test]
    fn files_of_a_device_share_its_counts_as_long_as_one_is_open() {
        let devices = Devices::default();
        let (one, other) = (devices.with_number(1), devices.with_number(2));
        assert!(Arc::ptr_eq(&one, &devices.with_number(1)) && !Arc::ptr_eq(&one, &other));
        drop((one, other));
        let _third = devices.with_number(3);
        assert_eq!(devices.0.lock().len(), 1, "those that are gone are forgotten");
    }
}
