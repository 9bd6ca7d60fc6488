//! One queue of a device: requests come in and results go out on its own ring.

use super::{
    mapping::Mapping,
    wire::{self, Descriptor, DeviceInfo, QueueCommand, Request},
};
use crate::{
    Errno,
    memory::PAGE_SIZE,
    time::Deadline,
    uring::{Issuer, Ring, opcode, types},
};
use core::{marker::PhantomData, ptr::NonNull};
use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
};

/// The memory for the data of requests: the same number of whole pages for each tag.
#[derive(Debug)]
pub struct Buffers {
    mapping: Mapping,
    each_bytes: usize,
}

impl Buffers {
    /// Returns the address of the data of `tag`, valid as long as `self` lives, and their largest
    /// length.
    pub fn place(&self, tag: u16) -> (NonNull<u8>, usize) {
        let offset = usize::from(tag) * self.each_bytes;
        assert!(offset + self.each_bytes <= self.mapping.len(), "a tag of the queue");
        // SAFETY: inside the mapping, as just checked.
        (unsafe { self.mapping.start().add(offset) }, self.each_bytes)
    }
}

/// A queue. The thread that makes a queue serves the queue: the kernel takes results from no other
/// thread.
pub struct Queue {
    ring: Ring,
    device: Arc<OwnedFd>,
    id: u16,
    depth: u16,
    descriptors: Mapping,
    buffers: Arc<Buffers>,
    /// The number of tags with a command that has not completed.
    held: u16,
    unsent: u32,
    _one_thread: PhantomData<*const ()>,
}

impl core::fmt::Debug for Queue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Queue {} of {} requests", self.id, self.depth)
    }
}

impl Queue {
    /// Begins to take the requests of queue `id` of the device that `info` describes.
    ///
    /// # Errors
    /// `EINVAL`: the device has no such queue. `EBUSY`: it is being served. `ENOMEM`, `EMFILE`.
    pub fn new(device: Arc<OwnedFd>, id: u16, info: &DeviceInfo) -> Result<Queue, Errno> {
        let (depth, each_bytes) = (info.depth, info.buffer_bytes as usize);
        if depth == 0 || depth > super::DEPTH_MAX || each_bytes == 0 {
            return Err(Errno::INVAL);
        }
        // The table of each queue has room for the greatest depth.
        let offset = usize::from(id) * pages(super::DEPTH_MAX);
        let descriptors = Mapping::of_device(device.as_fd(), offset, pages(depth))?;
        let mapping = Mapping::zeroed(usize::from(depth) * each_bytes)?;
        let mut queue = Queue {
            ring: Ring::new(u32::from(depth), Issuer::Any)?,
            device,
            id,
            depth,
            descriptors,
            buffers: Arc::new(Buffers { mapping, each_bytes }),
            held: 0,
            unsent: 0,
            _one_thread: PhantomData,
        };
        for tag in 0..depth {
            queue.push(wire::io::FETCH, tag, 0);
        }
        queue.submit()?;
        match queue.next() {
            // Before the disk is started only errors can arrive.
            Some(Err(errno)) => Err(errno),
            _ => Ok(queue),
        }
    }

    /// Returns the descriptor that is readable while [`Queue::next`] has a request or an error.
    pub fn raw_fd(&self) -> i32 {
        self.ring.raw_fd()
    }

    /// Returns the memory for the data of requests.
    pub fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// Returns the queue's depth, the most requests at a time.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns `true` if more requests can arrive.
    pub fn is_open(&self) -> bool {
        self.held > 0
    }

    /// Takes a request. The data of a write are in its buffer. `None`: there is no request now.
    ///
    /// # Errors
    /// An error means that a tag brings no more requests. `ENODEV`: the disk was stopped. `EINVAL`,
    /// `EBUSY`: a result was invalid.
    #[allow(clippy::should_implement_trait, reason = "it goes on after None")]
    pub fn next(&mut self) -> Option<Result<Request, Errno>> {
        // SAFETY: `self` is borrowed exclusively, so no other thread uses the ring.
        let completion = unsafe { self.ring.pop() }?;
        self.held -= 1;
        if completion.result != 0 {
            return Some(Err(Errno::new(completion.result.abs())));
        }
        let tag = completion.user_data as u16;
        debug_assert!(tag < self.depth, "a tag that was given");
        let table = self.descriptors.start().cast::<Descriptor>();
        // SAFETY: the table has a descriptor for each tag below the depth, and its pages are
        // aligned. The kernel wrote this descriptor before the completion, and does not write it
        // again until it has a result.
        let descriptor = unsafe { table.add(usize::from(tag)).read_volatile() };
        Some(Ok(descriptor.request(tag)))
    }

    /// Sets the result of a request: bytes, or a negative error number. The data of a read are in
    /// its buffer. [`Queue::submit`] passes the result to the kernel; the tag can then bring
    /// another request.
    pub fn commit(&mut self, tag: u16, result: i32) {
        self.push(wire::io::COMMIT_AND_FETCH, tag, result);
    }

    fn push(&mut self, op: u32, tag: u16, result: i32) {
        let address = self.buffers.place(tag).0.as_ptr() as u64;
        let command = QueueCommand { queue: self.id, tag, result, address };
        let entry = opcode::UringCmd16::new(types::Fd(self.device.as_raw_fd()), op);
        let entry = entry.cmd(command.bytes()).build().user_data(u64::from(tag));
        // SAFETY: `self` is borrowed exclusively; the buffer lives until the tag comes back, or
        // for ever: see `drop`.
        let pushed = unsafe { self.ring.push(&entry) };
        assert!(pushed, "there is an entry for each tag");
        self.held += 1;
        self.unsent += 1;
    }

    /// Returns `true` if there are results that were not submitted to the kernel yet.
    pub fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Submits the results to the kernel. Does not wait; the kernel copies the data of reads
    /// meanwhile.
    ///
    /// # Errors
    /// `EAGAIN`, `EBUSY`, `ENOMEM`: the kernel is short of memory; try again.
    pub fn submit(&mut self) -> Result<(), Errno> {
        while self.unsent > 0 {
            match self.ring.enter(self.unsent, 0, Deadline::NOW) {
                Ok(0) => return Err(Errno::AGAIN),
                Ok(count) => self.unsent -= (count as u32).min(self.unsent),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.held > 0 {
            // The kernel tears the ring down after this returns, and may copy into the buffers
            // until then.
            core::mem::forget(self.buffers.clone());
        }
    }
}

fn pages(depth: u16) -> usize {
    (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tag_has_memory_of_its_own() {
        let mapping = Mapping::zeroed(4 * 8192).unwrap();
        let buffers = Buffers { mapping, each_bytes: 8192 };
        let places: Vec<usize> = (0..4).map(|tag| buffers.place(tag).0.as_ptr().addr()).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] == 8192));
        assert!(places[0].is_multiple_of(PAGE_SIZE));
        // SAFETY: the last byte of live memory, which no other code knows.
        unsafe { buffers.place(3).0.add(8191).write(7) };
    }

    #[test]
    fn what_is_no_ublk_device_has_no_queue() {
        let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let info = DeviceInfo { depth: 4, buffer_bytes: 4096, ..DeviceInfo::default() };
        assert!(Queue::new(Arc::new(null), 0, &info).is_err());
        assert_eq!((pages(1), pages(171), super::super::DEPTH_MAX), (4096, 8192, 4096));
    }
}
