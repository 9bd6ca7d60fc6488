//! The in-flight region, in memory that the VMM keeps. If the server is killed, the next server
//! repeats the requests that are recorded there.
//!
//! ```text
//!  region of a queue   features u64 · version u16 · size u16 · last u16 · used u16 · entries
//!  entry of a head     in flight u8 · 5 unused · next u16 · counter u64
//! ```
//! The device marks an entry before its request begins, and clears the entry after the driver can
//! see the answer. If the server crashes after the answer and before it updates `used`, then `used`
//! is behind the index in the guest's used ring. In this case the driver can see the answer of
//! `last`. Source: vhost-user protocol, "Inflight I/O tracking".

use core::sync::atomic::{Ordering, fence};
use nowait::Errno;
use nowait_sys::inspect;
use std::{
    fs::File,
    os::fd::{FromRawFd, OwnedFd},
    sync::Arc,
};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const ALIGN_BYTES: usize = 64;
const VERSION: u16 = 1;

/// The regions of all queues of a device.
#[derive(Clone, Debug)]
pub struct Area {
    region: Arc<MmapRegion>,
    queue_size: u16,
    queues: u16,
}

/// The region of one queue.
#[derive(Debug)]
pub struct Inflight {
    area: Area,
    start: usize,
    counter: u64,
    last: u16,
}

/// The requests that an earlier server has left in flight.
#[derive(Debug, PartialEq, Eq)]
pub struct UnfinishedRequests {
    /// The requests' first descriptors, the oldest request first.
    pub heads: Vec<u16>,
}

fn region_bytes(queue_size: u16) -> usize {
    (HEADER_BYTES + ENTRY_BYTES * usize::from(queue_size)).next_multiple_of(ALIGN_BYTES)
}

impl Area {
    /// Makes an empty area. Returns the area, its file, and the length of the file in bytes.
    ///
    /// # Errors
    /// No memory or descriptors left.
    pub fn new(queues: u16, queue_size: u16) -> Result<(Area, File, usize), Errno> {
        let bytes = region_bytes(queue_size) * usize::from(queues);
        let file = inspect::memory_file(&vec![0; bytes])?;
        // SAFETY: the descriptor was just made, and ownership moves to the file.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(file.into_raw()) });
        let shared = file.try_clone().map_err(|_| Errno::MFILE)?;
        Ok((Area::map(shared, 0, bytes as u64, queues, queue_size)?, file, bytes))
    }

    /// Maps the area in `file`, which an earlier server or this one has filled.
    ///
    /// # Errors
    /// `EINVAL`: the file is too small for so many queues. `ENOMEM`.
    pub fn map(
        file: File,
        offset: u64,
        bytes: u64,
        queues: u16,
        queue_size: u16,
    ) -> Result<Area, Errno> {
        let needed = region_bytes(queue_size) * usize::from(queues);
        let there = file.metadata().map_or(0, |about| about.len());
        let end = offset.checked_add(bytes).ok_or(Errno::INVAL)?;
        if needed == 0 || end > there || bytes < needed as u64 {
            return Err(Errno::INVAL);
        }
        let region = MmapRegion::from_file(FileOffset::new(file, offset), needed);
        let region = Arc::new(region.map_err(|_| Errno::NOMEM)?);
        Ok(Area { region, queue_size, queues })
    }

    /// Opens the region of a queue whose used ring has the index `used`. Returns the region, and
    /// the requests that an earlier server has left in flight.
    ///
    /// # Errors
    /// `EINVAL`: there is no region for a queue of this number and size, or its contents are not
    /// valid.
    pub fn queue(
        &self,
        index: u16,
        size: u16,
        used: u16,
    ) -> Result<(Inflight, UnfinishedRequests), Errno> {
        if index >= self.queues || size > self.queue_size {
            return Err(Errno::INVAL);
        }
        let start = region_bytes(self.queue_size) * usize::from(index);
        let mut queue = Inflight { area: self.clone(), start, counter: 0, last: 0 };
        let left = queue.recover(size, used).ok_or(Errno::INVAL)?;
        Ok((queue, left))
    }
}

impl Inflight {
    fn slice(&self) -> Option<VolatileSlice<'_>> {
        self.area.region.get_slice(self.start, region_bytes(self.area.queue_size)).ok()
    }

    fn recover(&mut self, size: u16, used: u16) -> Option<UnfinishedRequests> {
        let slice = self.slice()?;
        if slice.read_obj::<u16>(8).ok()? == 0 {
            slice.write_obj(VERSION, 8).ok()?;
            slice.write_obj(self.area.queue_size, 10).ok()?;
            slice.write_obj(used, 14).ok()?;
            return Some(UnfinishedRequests { heads: Vec::new() });
        }
        let last = slice.read_obj::<u16>(12).ok()?;
        if slice.read_obj::<u16>(14).ok()? != used {
            let entry = HEADER_BYTES + ENTRY_BYTES * usize::from(last);
            slice.write_obj(0u8, entry).ok()?;
            slice.write_obj(used, 14).ok()?;
        }
        let mut found = Vec::new();
        for head in 0..size {
            let entry = HEADER_BYTES + ENTRY_BYTES * usize::from(head);
            if slice.read_obj::<u8>(entry).ok()? != 0 {
                found.push((slice.read_obj::<u64>(entry + 8).ok()?, head));
            }
        }
        found.sort_unstable();
        let counter = found.last().map_or(0, |newest| newest.0.wrapping_add(1));
        let heads = found.into_iter().map(|(_, head)| head).collect();
        (self.counter, self.last) = (counter, last);
        Some(UnfinishedRequests { heads })
    }

    pub(super) fn begin(&mut self, head: u16) {
        let counter = self.counter;
        self.counter = counter.wrapping_add(1);
        let entry = HEADER_BYTES + ENTRY_BYTES * usize::from(head);
        self.write(|slice| {
            slice.write_obj(counter, entry + 8).ok()?;
            fence(Ordering::SeqCst);
            slice.write_obj(1u8, entry).ok()
        });
    }

    pub(super) fn before_answer(&mut self, head: u16) {
        let last = self.last;
        self.last = head;
        let entry = HEADER_BYTES + ENTRY_BYTES * usize::from(head);
        self.write(|slice| {
            slice.write_obj(last, entry + 6).ok()?;
            slice.write_obj(head, 12).ok()
        });
        fence(Ordering::SeqCst);
    }

    /// Records that the driver can see the answer of `head`, and that the used ring has the index
    /// `used`.
    pub(super) fn after_answer(&mut self, head: u16, used: u16) {
        fence(Ordering::SeqCst);
        let entry = HEADER_BYTES + ENTRY_BYTES * usize::from(head);
        self.write(|slice| {
            slice.write_obj(0u8, entry).ok()?;
            fence(Ordering::SeqCst);
            slice.write_obj(used, 14).ok()
        });
    }

    /// Writes to the region. All entries are inside the region, because the numbers of heads are
    /// below the size of the queue.
    fn write(&self, write: impl FnOnce(VolatileSlice<'_>) -> Option<()>) {
        let written = self.slice().and_then(write);
        debug_assert!(written.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reopened(file: &File, bytes: usize) -> Area {
        Area::map(file.try_clone().unwrap(), 0, bytes as u64, 2, 8).unwrap()
    }

    #[test]
    fn requests_in_flight_are_recovered_in_order() {
        let (area, file, bytes) = Area::new(2, 8).unwrap();
        let (mut queue, left) = area.queue(1, 8, 5).unwrap();
        assert!(left.heads.is_empty());
        for head in [3, 7, 1] {
            queue.begin(head);
        }
        queue.before_answer(7);
        queue.after_answer(7, 6);
        let (mut again, left) = reopened(&file, bytes).queue(1, 8, 6).unwrap();
        assert_eq!(left.heads, [3, 1]);
        again.begin(7);
        let (_, left) = reopened(&file, bytes).queue(1, 8, 6).unwrap();
        assert_eq!(left.heads, [3, 1, 7]);
        assert!(area.queue(0, 8, 0).unwrap().1.heads.is_empty());
    }

    #[test]
    fn an_answer_that_the_driver_saw_is_not_repeated() {
        let (area, file, bytes) = Area::new(2, 8).unwrap();
        let (mut queue, _) = area.queue(0, 8, 0).unwrap();
        queue.begin(2);
        queue.begin(4);
        queue.before_answer(4);
        // The index of the used ring is 1: the device gave the answer before the process ended.
        assert_eq!(reopened(&file, bytes).queue(0, 8, 1).unwrap().1.heads, [2]);
        // The index of the used ring has not changed: the process ended before the answer.
        let (mut queue, left) = area.queue(0, 8, 1).unwrap();
        assert_eq!(left.heads, [2]);
        queue.before_answer(2);
        assert_eq!(reopened(&file, bytes).queue(0, 8, 1).unwrap().1.heads, [2]);
    }

    #[test]
    fn too_small_a_file_and_unknown_queues_are_refused() {
        let (area, file, bytes) = Area::new(2, 8).unwrap();
        let map = |bytes: usize, queues| {
            Area::map(file.try_clone().unwrap(), 0, bytes as u64, queues, 8).map(drop)
        };
        assert_eq!(map(bytes + 1, 2), Err(Errno::INVAL));
        assert_eq!(map(bytes, 3), Err(Errno::INVAL));
        assert_eq!(map(bytes, 0), Err(Errno::INVAL));
        assert!(area.queue(2, 8, 0).is_err() && area.queue(0, 16, 0).is_err());
    }
}
