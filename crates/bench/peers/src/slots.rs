//! The buffers of requests in flight.

use nowait_sys::Errno;
use nowait_sys::file::IoVec;

use crate::buffers::Buffer;
use crate::{Buffers, Request};
use nowait_harness::error::{Failure, Result};
use nowait_harness::pattern;

/// A buffer does not move in memory.
pub(crate) struct Slots {
    /// Bytes of a segment; `request_bytes` is the length of a whole buffer.
    block_bytes: usize,
    request_bytes: usize,
    buffers: Vec<Buffer>,
    requests: Vec<Request>,
    free: Vec<usize>,
}

impl Slots {
    pub(crate) fn new(buffers: Buffers) -> Self {
        let depth = buffers.depth();
        let requests = vec![Request::default(); depth];
        let (block_bytes, free) = (buffers.block_bytes, (0..depth).rev().collect());
        let request_bytes = block_bytes * buffers.segments;
        Self { block_bytes, request_bytes, buffers: buffers.list, requests, free }
    }

    /// Gives the request a slot; `None` if all are in use. Stamps the buffer of a write.
    pub(crate) fn take(&mut self, request: Request) -> Option<usize> {
        let slot = self.free.pop()?;
        self.requests[slot] = request;
        if request.generation > 0 {
            pattern::stamp(request.offset, &mut self.buffers[slot], request.generation);
        }
        Some(slot)
    }

    pub(crate) fn memory(&mut self, slot: usize) -> IoVec {
        let buffer = &mut self.buffers[slot];
        IoVec { base: buffer.as_mut_ptr(), len: buffer.len() }
    }

    pub(crate) fn segments(&mut self, slot: usize) -> Vec<IoVec> {
        let segment = |bytes: &mut [u8]| IoVec { base: bytes.as_mut_ptr(), len: bytes.len() };
        self.buffers[slot].chunks_mut(self.block_bytes).map(segment).collect()
    }

    /// Ends the request of a slot, which must have moved all of its bytes.
    pub(crate) fn end(
        &mut self,
        slot: usize,
        moved: core::result::Result<usize, Errno>,
        each: &mut impl FnMut(Request, &[u8]),
    ) -> Result<()> {
        match moved {
            Ok(bytes) if bytes == self.request_bytes => self.give_back(slot, each),
            Ok(bytes) => {
                let what = format!("{bytes} of {} bytes were moved", self.request_bytes);
                return Err(Failure::new(what));
            }
            Err(errno) => return Err(Failure::new(format!("a request failed: {errno}"))),
        }
        Ok(())
    }

    pub(crate) fn give_back(&mut self, slot: usize, each: &mut impl FnMut(Request, &[u8])) {
        let request = self.requests[slot];
        let segments = self.buffers[slot].chunks(self.block_bytes).zip(0u64..);
        for (bytes, segment) in segments {
            let offset = request.offset + segment * self.block_bytes as u64;
            each(Request { offset, ..request }, bytes);
        }
        self.free.push(slot);
    }
}
