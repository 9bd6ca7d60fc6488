//! Chunked reads: a read for which the pool has no room uses one chunk at a time.

use super::{Active, Transmission, small};
use crate::nbd::{
    outbox::Outbox,
    reply::{self, RequestRef},
    wire::Header,
};
use nowait::Errno;
use nowait_device::{Medium, PIECE_BYTES, RequestEnd, Tag};

/// The session reads one chunk after the other, each after the previous chunk was sent. The client
/// has no other request in flight meanwhile.
#[derive(Debug)]
pub(super) struct ChunkedRead {
    slot: u32,
    /// The offset in the image of the chunk in flight, or else of the next chunk, in bytes.
    offset: u64,
    /// The bytes left, including the chunk in flight.
    left: usize,
    /// The reply has begun, so an error can no longer be reported in it.
    begun: bool,
}

impl ChunkedRead {
    pub(super) fn new(slot: u32, header: &Header) -> ChunkedRead {
        ChunkedRead { slot, offset: header.offset, left: header.len as usize, begun: false }
    }
}

impl<F> Transmission<F> {
    pub(super) fn read_more<M: Medium<File = F>>(&mut self, medium: &mut M) {
        let Some(ChunkedRead { slot, offset, left, .. }) = self.chunked else { return };
        let mut len = left.min(PIECE_BYTES);
        if !self.fits(len, medium.pool()) {
            len = small(offset, left);
        }
        self.held_bytes += len;
        let chunk = medium.pool().take_for(self.image.number(), len);
        medium.read(&self.image, chunk, offset, Tag { owner: self.owner, slot, part: 0 });
    }

    /// After an error, answers with the error, or marks the connection as broken if the reply has
    /// begun.
    pub(super) fn chunk_ended<M: Medium<File = F>>(
        &mut self,
        ended: RequestEnd,
        medium: &mut M,
        out: &mut Outbox,
        now_ns: u64,
    ) {
        let slot = ended.tag.slot as usize;
        let Some(chunked) = &mut self.chunked else { return };
        let Some(Some(active)) = self.requests.get_mut(slot) else { return };
        let header = active.header;
        match (ended.result, ended.chunk) {
            (Ok(()), Some(chunk)) => {
                if !core::mem::replace(&mut chunked.begun, true) {
                    let request = RequestRef { cookie: header.cookie, offset: header.offset };
                    reply::data(out, self.agreed, request, header.len);
                }
                chunked.left -= chunk.data().len();
                chunked.offset += chunk.data().len() as u64;
                out.data(chunk);
                if chunked.left > 0 {
                    return;
                }
            }
            (result, chunk) => {
                let errno = result.err().unwrap_or(Errno::IO);
                active.failed = Some(errno);
                if let Some(chunk) = chunk {
                    self.held_bytes -= chunk.data().len();
                    medium.pool().give_back(chunk);
                }
                if chunked.begun {
                    self.broken = true;
                } else {
                    self.answer_error(&header, errno, out);
                }
            }
        }
        self.chunked = None;
        if let Some(active) = self.requests[slot].take() {
            self.free.push(ended.tag.slot);
            let Active { kind, began_ns, failed, .. } = active;
            let elapsed_ns = now_ns.saturating_sub(began_ns);
            self.image.stats().end(kind, header.len, elapsed_ns, failed.is_some());
        }
    }
}
