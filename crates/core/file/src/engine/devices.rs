//! The devices that files lie on: a disk with request tags, another device, or memory.

use super::Engine;
use crate::hints::filesystem::FileSystem;
use nowait_block::{Disk, Limits};
use nowait_cache::InFlightMax;
use nowait_sys::{Errno, file::Stat, inspect};
use std::sync::Arc;

impl Engine {
    /// Also records the device of a file with offsets that is not in memory, if the backend has
    /// request tags.
    pub(crate) fn filesystem(&self, stat: &Stat, fd: i32) -> Result<Arc<FileSystem>, Errno> {
        let found = self.known.filesystems.of(stat, fd)?;
        if !found.in_memory
            && stat.has_offsets()
            && let Some(tags) = self.parts.backends.tags()
        {
            // The driver looks the device's number of tags up in its next turn; until then a guess
            // limits the requests.
            tags.note_device(stat.device());
        }
        Ok(found)
    }

    pub(crate) fn note_device(&self, stat: &Stat, fd: i32) {
        let is_new =
            self.parts.backends.tags().is_some_and(|tags| !tags.knows_device(stat.device()));
        if is_new && stat.has_offsets() {
            let _ = self.filesystem(stat, fd); // after an error, no device is recorded
        }
    }

    /// Called by the driver. An engine without a descriptor table of its own looks up no disk,
    /// because the look-up opens descriptors.
    pub(crate) fn look_at_devices(&self) {
        let Some(tags) = self.parts.backends.tags() else { return };
        tags.look(|dev| {
            let is_private = !self.holds.is_table_shared();
            let (dev, tags) = is_private.then(|| inspect::disk_of(dev)).flatten()?;
            Some(Disk { dev, tags })
        });
    }

    pub(crate) fn driver_waits(&self, waits: bool) {
        self.parts.backends.tags().into_iter().for_each(|tags| tags.driver_waits(waits));
    }
}

/// The limits leave some queue slots and threads for other devices if one device hangs. The kernel
/// has 128 threads for an io_uring; with native AIO, the workers carry what may block.
pub(crate) fn in_flight_max(queue: Limits, workers: usize) -> InFlightMax {
    let workers = |eighths: usize| (workers * eighths / 8).max(1) as u32;
    match queue {
        Limits { depth: 0, .. } => InFlightMax { reads: workers(5), writes: workers(2) },
        Limits { writes: false, .. } => InFlightMax { reads: 128, writes: workers(6) },
        Limits { .. } => InFlightMax { reads: 128, writes: 64 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::queues::NO_QUEUES;

    #[test]
    fn a_device_leaves_some_workers_to_others() {
        let ring = Limits::of_all_kinds(1024);
        let aio = Limits { writes: false, ..ring };
        let most = |queue, workers| {
            let InFlightMax { reads, writes } = in_flight_max(queue, workers);
            (reads, writes)
        };
        assert_eq!(most(ring, 32), (128, 64));
        assert_eq!(most(aio, 32), (128, 24));
        assert_eq!(most(NO_QUEUES, 32), (20, 8));
        assert_eq!(most(NO_QUEUES, 1), (1, 1), "one at a time is the least");
    }
}
