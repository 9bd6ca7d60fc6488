//! io_uring by hand, for requests of several segments.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nowait_engine::Segments;
use nowait_sys::file::IoVec;
use nowait_sys::uring::{Completion, Entry, Issuer, Ring, opcode, types};

use crate::error::{BenchError, Result, failed};
use crate::rig::{Memory, expect_whole};
use crate::vector::{Carries, Transfer};

/// A ring of the calling thread, and the memory of its requests.
pub(crate) struct RingRig {
    ring: Ring,
    memory: Memory,
    /// The segments of requests in flight, by name: the kernel may look at them until the end.
    lists: HashMap<u64, Arc<[IoVec]>>,
    /// In the submission queue, not yet handed over.
    pending: u32,
    in_flight: usize,
}

impl RingRig {
    /// Makes a ring for `requests` in this memory.
    pub(crate) fn new(requests: usize, memory: Memory) -> Result<RingRig> {
        let ring = Ring::new(requests as u32, Issuer::Single).map_err(failed("io_uring_setup"))?;
        Ok(RingRig { ring, memory, lists: HashMap::new(), pending: 0, in_flight: 0 })
    }

    fn entry(&mut self, fd: i32, (name, segments, offset): Transfer) -> Entry {
        let fd = types::Fd(fd);
        let entry = match segments {
            Segments::One(one) => {
                opcode::Read::new(fd, one.base, one.len as u32).offset(offset).build()
            }
            Segments::Many(list) => {
                let read = opcode::Readv::new(fd, list.as_ptr().cast(), list.len() as u32);
                self.lists.insert(name, list);
                read.offset(offset).build()
            }
        };
        entry.user_data(name)
    }

    /// Hands over what is pending, and waits for `min` completions.
    fn enter(&mut self, min: u32) -> Result<()> {
        super::ring::enter(&self.ring, &mut self.pending, min)
    }

    /// Takes a completion that is there.
    fn pop(&mut self) -> Option<Completion> {
        // SAFETY: this thread alone uses the ring.
        let completion = unsafe { self.ring.pop() }?;
        self.in_flight -= 1;
        self.lists.remove(&completion.user_data);
        Some(completion)
    }
}

impl Carries for RingRig {
    fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Only queues them: the call that waits hands them over.
    fn submit(&mut self, file: &File, transfers: Vec<Transfer>) -> Result<()> {
        for transfer in transfers {
            let entry = self.entry(file.as_raw_fd(), transfer);
            // SAFETY: this thread alone uses the ring; memory and lists live until the completion,
            // for which `drop` waits.
            if !unsafe { self.ring.push(&entry) } {
                return Err(BenchError::failed("the submission queue is full"));
            }
            self.pending += 1;
            self.in_flight += 1;
        }
        Ok(())
    }

    fn reap(
        &mut self,
        max: usize,
        expected_bytes: usize,
        mut sink: impl FnMut(u64),
    ) -> Result<usize> {
        let mut taken = 0;
        self.enter(1)?;
        while taken < max {
            let Some(completion) = self.pop() else { break };
            taken += 1;
            expect_whole(completion.result.into(), expected_bytes)?;
            sink(completion.user_data);
        }
        Ok(taken)
    }
}

impl Drop for RingRig {
    fn drop(&mut self) {
        while self.in_flight > 0 && self.enter(1).is_ok() {
            while self.pop().is_some() {}
        }
    }
}
