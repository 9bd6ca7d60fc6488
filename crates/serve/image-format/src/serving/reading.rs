//! Reads: the writer copies data from memory, and gets each other extent by one GET.

use super::Serving;
use crate::block::BlockCodec;
use crate::errands::Errand;
use crate::extents::Extent;
use crate::geometry::Geometry;
use crate::head::HEAD_BYTES_MAX;
use crate::outbox::{Outbox, Purpose};
use crate::recovery::DAMAGED_READS_MAX;
use crate::request::{Failure, RequestId};
use crate::scan::MISSED_READS_MAX;
use crate::store::{Answer, Key};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Read {
    id: RequestId,
    blocks: Range<u64>,
    data: Vec<u8>,
    gets: usize,
}

impl Serving {
    pub(super) fn read(&mut self, id: RequestId, blocks: Range<u64>, out: &mut Outbox) {
        let size = self.head.geometry.block_bytes as usize;
        let mut data = vec![0; (blocks.end - blocks.start) as usize * size];
        let number = self.reads_begun;
        self.reads_begun += 1;
        let mut gets = 0;
        for piece in self.map.extents().pieces(blocks.clone()) {
            let Some(extent) = piece.extent else { continue };
            let at = (piece.block - blocks.start) as usize * size;
            let to = &mut data[at..at + piece.blocks as usize * size];
            if !self.copy(piece.block, extent, to) {
                gets += 1;
                self.get(number, piece.block, extent, out);
            }
        }
        match gets {
            0 => self.end_read(id, data, out),
            _ => drop(self.reads.insert(number, Read { id, blocks, data, gets })),
        }
    }

    fn copy(&self, block: u64, extent: Extent, to: &mut [u8]) -> bool {
        let size = self.head.geometry.block_bytes as usize;
        let places = (extent.index..).map(|index| (extent.sequence, index)).zip(block..);
        let mut each = to.chunks_exact_mut(size).zip(places);
        each.all(|(to, (at, block))| self.tail.copy(at, block, to))
    }

    fn get(&self, read: u64, block: u64, extent: Extent, out: &mut Outbox) {
        let stored = self.head.geometry.stored_bytes() as u64;
        let segment = self.map.segments().get(&extent.sequence);
        let start =
            segment.map_or(0, |it| u64::from(it.data_start)) + u64::from(extent.index) * stored;
        let range = start..start + u64::from(extent.blocks) * stored;
        let purpose = Purpose::ReadData { read, block, extent };
        out.get_data(purpose, Key::Segment(extent.sequence), range);
    }

    pub(super) fn read_answered(
        &mut self,
        errand: Errand<Purpose>,
        answer: Answer,
        out: &mut Outbox,
    ) {
        let Purpose::ReadData { read: number, block, extent } = errand.purpose else { return };
        // The read has ended if another of its GETs has failed.
        let Some(read) = self.reads.get_mut(&number) else { return };
        let geometry = self.head.geometry;
        let codec = self.head.codec(self.cipher.as_ref(), extent.sequence);
        match answer {
            Answer::Got { bytes, .. }
                if take(read, &bytes, (block, extent), codec, geometry).is_some() =>
            {
                read.gets -= 1;
                if read.gets == 0
                    && let Some(read) = self.reads.remove(&number)
                {
                    self.end_read(read.id, read.data, out);
                }
            }
            Answer::Got { .. } if errand.damaged >= DAMAGED_READS_MAX => {
                self.fail(number, extent.sequence, "damaged", out);
            }
            Answer::Got { .. } => out.errands.reread(errand, out.now_ns),
            Answer::Missing => {
                // This writer may have deleted the segment after a newer change of the block.
                let is_there = self.map.extents().place(block);
                if is_there == Some((extent.sequence, extent.index)) {
                    Self::missed(errand, out);
                } else if let Some(read) = self.reads.remove(&number) {
                    self.read(read.id, read.blocks, out);
                }
            }
            _ => out.errands.again(errand, out.now_ns),
        }
    }

    /// Ends a read only with a proof that the writer had the image within the last minute.
    pub(super) fn end_read(&mut self, id: RequestId, data: Vec<u8>, out: &mut Outbox) {
        self.unproven.push((id, data));
        self.prove(out);
    }

    /// Repeats the GET of a needed segment, because the store may have erred. After some tries the
    /// writer reads the head, because a later writer may have deleted the segment.
    fn missed(errand: Errand<Purpose>, out: &mut Outbox) {
        let Purpose::ReadData { read, extent, .. } = errand.purpose else { return };
        if errand.damaged < MISSED_READS_MAX {
            return out.errands.reread(errand, out.now_ns);
        }
        let purpose = Purpose::ProveLoss { read, sequence: extent.sequence };
        out.get(purpose, Key::Head, HEAD_BYTES_MAX);
    }

    pub(super) fn lose(&mut self, read: u64, sequence: u64, out: &mut Outbox) {
        self.fail(read, sequence, "missing", out);
    }

    fn fail(&mut self, read: u64, sequence: u64, what: &'static str, out: &mut Outbox) {
        out.note_loss(sequence, what);
        let id = self.reads.remove(&read).map(|read| read.id);
        id.into_iter().for_each(|id| out.end(id, Err(Failure::Io)));
    }

    /// Removes and returns the requests that have not ended.
    pub(crate) fn unfinished(&mut self) -> Vec<RequestId> {
        let reads = core::mem::take(&mut self.reads).into_values().map(|read| read.id);
        let unproven = self.unproven.drain(..).map(|(id, _)| id);
        let flushes = self.flushes.drain(..).map(|(.., id)| id);
        reads
            .chain(unproven)
            .chain(flushes)
            .chain(self.shrink.take().map(|shrink| shrink.id()))
            .chain(self.closing.take().map(|closing| closing.id()))
            .chain(self.parked.drain(..).map(|(id, _)| id))
            .collect()
    }
}

fn take(
    read: &mut Read,
    bytes: &[u8],
    (block, extent): (u64, Extent),
    codec: BlockCodec<'_>,
    geometry: Geometry,
) -> Option<()> {
    let (size, stored) = (geometry.block_bytes as usize, geometry.stored_bytes());
    if bytes.len() != extent.blocks as usize * stored {
        return None;
    }
    for (bytes, block) in bytes.chunks_exact(stored).zip(block..) {
        let at = (block - read.blocks.start) as usize * size;
        codec.copy(&mut read.data[at..at + size], bytes, block).ok()?;
    }
    Some(())
}
