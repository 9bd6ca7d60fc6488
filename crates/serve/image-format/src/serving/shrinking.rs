//! Making an image smaller: one PUT of the head brings the new size and a checkpoint without the
//! cut blocks.
//!
//! ```text
//!   changes wait ─▶ the previous checkpoint is complete ─▶ the map loses the cut blocks
//!     ─▶ a checkpoint of this map is put, and all segments before it
//!     ─▶ the head that names it has the new size ─▶ changes continue
//! ```
//! If the writer is killed before the head is put, the image keeps its size and all blocks. No
//! segment behind the checkpoint of a head has a block behind the end of the image, so readers of
//! the log need not know that the image was larger.
//!
//! The cut blocks count as dead since a place of the log that the writer leaves out. A snapshot
//! made before the head is put ends at that place at the latest, and keeps the cut blocks; a later
//! snapshot ends behind that place, and does not keep them. Until the head is put, the writer puts
//! no segment behind that place: the next writer would take the place for the end of the log.

use super::Serving;
use crate::mistake::{self, Mistake};
use crate::outbox::Outbox;
use crate::request::{Request, RequestId};

#[derive(Debug)]
pub(super) struct Shrink {
    id: RequestId,
    size_bytes: u64,
    /// `true`: the map has lost the cut blocks, and the checkpoint in progress is of that map.
    is_cut: bool,
}

impl Shrink {
    pub(super) fn new(id: RequestId, size_bytes: u64) -> Shrink {
        Shrink { id, size_bytes, is_cut: false }
    }

    pub(super) fn id(&self) -> RequestId {
        self.id
    }
}

impl Serving {
    /// Returns the size for requests that come now: the smaller one once a shrink has begun.
    pub(super) fn size_bytes(&self) -> u64 {
        let size_bytes = self.head.geometry.size_bytes;
        self.shrink.as_ref().map_or(size_bytes, |it| it.size_bytes.min(size_bytes))
    }

    /// Without this wait, the writer could put a change behind the place that it leaves out, before
    /// the head with the new size.
    pub(super) fn keeps_waiting(&self, request: &Request) -> bool {
        let is_another = matches!(request, Request::Shrink { .. });
        self.shrink.is_some() && (is_another || !mistake::makes(Mistake::ChangeMeanwhile))
    }

    pub(super) fn shrink(&mut self) {
        let waiting = self.shrink.as_ref().filter(|it| !it.is_cut);
        let Some(size_bytes) = waiting.map(|it| it.size_bytes) else { return };
        if !self.tail.open_is_empty() {
            self.seal();
        }
        if !self.publication.may_begin(&self.head) {
            return;
        }
        let by = match mistake::makes(Mistake::CutInPlace) {
            true => self.tail.next() - 1,
            false => self.tail.leave_out(),
        };
        let position = self.tail.next();
        let whole = mistake::makes(Mistake::CutLater).then(|| self.map.clone());
        let first = size_bytes / u64::from(self.head.geometry.block_bytes);
        self.map.discard(first..u64::MAX, by);
        let map = whole.as_ref().unwrap_or(&self.map);
        self.publication.draft(&self.head, map, position, Some(size_bytes));
        self.shrink.iter_mut().for_each(|it| it.is_cut = true);
    }

    pub(super) fn end_shrink(&mut self, out: &mut Outbox) {
        if let Some(shrink) = self.shrink.take_if(|it| it.is_cut) {
            out.end(shrink.id, Ok(Vec::new()));
        }
    }
}
