//! The buffers of requests in flight.

use nowait_sys::Errno;
use nowait_sys::file::IoVec;

use super::buffers::Buffer;
use super::{Buffers, Request};
use crate::error::{BenchError, Result};
use crate::pattern;

/// Buffers of one size, each with the request that has it. A buffer keeps its place.
pub(super) struct Slots {
    block_bytes: usize,
    buffers: Vec<Buffer>,
    requests: Vec<Request>,
    free: Vec<usize>,
}

impl Slots {
    pub(super) fn new(buffers: Buffers) -> Self {
        let depth = buffers.depth();
        let requests = vec![Request::default(); depth];
        let (block_bytes, free) = (buffers.block_bytes, (0..depth).rev().collect());
        Self { block_bytes, buffers: buffers.list, requests, free }
    }

    /// Gives the request a slot, whose buffer is stamped if it is a write.
    pub(super) fn take(&mut self, request: Request) -> Option<usize> {
        let slot = self.free.pop()?;
        self.requests[slot] = request;
        if request.generation > 0 {
            pattern::stamp(request.offset, &mut self.buffers[slot], request.generation);
        }
        Some(slot)
    }

    /// Returns the memory of a slot.
    pub(super) fn memory(&mut self, slot: usize) -> IoVec {
        let buffer = &mut self.buffers[slot];
        IoVec { base: buffer.as_mut_ptr(), len: buffer.len() }
    }

    /// Ends the request of a slot, which must have moved all of its block.
    pub(super) fn end(
        &mut self,
        slot: usize,
        moved: core::result::Result<usize, Errno>,
        each: &mut impl FnMut(Request, &[u8]),
    ) -> Result<()> {
        match moved {
            Ok(bytes) if bytes == self.block_bytes => self.give_back(slot, each),
            Ok(bytes) => {
                let what = format!("{bytes} of {} bytes were moved", self.block_bytes);
                return Err(BenchError::failed(what));
            }
            Err(errno) => return Err(BenchError::failed(format!("a request failed: {errno}"))),
        }
        Ok(())
    }

    /// Takes the slot back, and shows what it held.
    pub(super) fn give_back(&mut self, slot: usize, each: &mut impl FnMut(Request, &[u8])) {
        each(self.requests[slot], &self.buffers[slot]);
        self.free.push(slot);
    }
}
