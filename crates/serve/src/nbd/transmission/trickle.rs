//! Reads for which there is no memory: slowly, with a small chunk at a time.

use super::{Active, Transmission, fits, small};
use crate::nbd::{
    outbox::Outbox,
    reply::{self, About},
    wire::Header,
};
use nowait::Errno;
use nowait_export::{Ended, Medium, PIECE_BYTES, Tag};

/// A read for which there is no memory: its data go one chunk after the other, each when the one
/// before was sent. Nothing else of its client is under way.
#[derive(Debug)]
pub(super) struct Trickle {
    slot: u32,
    /// Where the next chunk begins, in bytes of the image.
    offset: u64,
    /// In bytes, the chunk under way among them.
    left: usize,
    /// The reply has begun: it cannot become an error any more.
    begun: bool,
}

impl Trickle {
    pub(super) fn new(slot: u32, header: &Header) -> Trickle {
        Trickle { slot, offset: header.offset, left: header.len as usize, begun: false }
    }
}

impl<F> Transmission<F> {
    /// Goes on with a read that has no memory for all.
    pub(super) fn read_more<M: Medium<File = F>>(&mut self, medium: &mut M) {
        let Some(Trickle { slot, offset, left, .. }) = self.trickle else { return };
        let mut len = left.min(PIECE_BYTES);
        if !fits(self.held_bytes, len, self.limits.bytes, medium.pool()) {
            len = small(offset, left);
        }
        self.held_bytes += len;
        let chunk = medium.pool().take(len);
        medium.read(&self.image, chunk, offset, Tag { owner: self.owner, slot, part: 0 });
    }

    /// Takes the end of a chunk of such a read.
    pub(super) fn trickled<M: Medium<File = F>>(
        &mut self,
        ended: Ended,
        medium: &mut M,
        out: &mut Outbox,
        now_ns: u64,
    ) {
        let slot = ended.tag.slot as usize;
        let Some(trickle) = &mut self.trickle else { return };
        let Some(Some(active)) = self.requests.get_mut(slot) else { return };
        let header = active.header;
        match (ended.result, ended.chunk) {
            (Ok(()), Some(chunk)) => {
                if !core::mem::replace(&mut trickle.begun, true) {
                    let about = About { cookie: header.cookie, offset: header.offset };
                    reply::data(out, self.agreed, about, header.len);
                }
                trickle.left -= chunk.data().len();
                trickle.offset += chunk.data().len() as u64;
                out.data(chunk);
                if trickle.left > 0 {
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
                if trickle.begun {
                    self.broken = true;
                } else {
                    self.answer_error(&header, errno, out);
                }
            }
        }
        self.trickle = None;
        if let Some(active) = self.requests[slot].take() {
            self.free.push(ended.tag.slot);
            let Active { kind, began_ns, failed, .. } = active;
            let elapsed_ns = now_ns.saturating_sub(began_ns);
            self.image.stats().end(kind, header.len, elapsed_ns, failed.is_some());
        }
    }
}
