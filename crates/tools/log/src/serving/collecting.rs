//! Collection of segments that are mostly dead, as far as it needs the store and the tail.

use super::Serving;
use crate::block::BlockCodec;
use crate::collector::Moved;
use crate::errands::Errand;
use crate::geometry::Geometry;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Purpose};
use crate::recovery::{DAMAGED_READS_MAX, judge};
use crate::store::{Answer, Key};

impl Serving {
    /// Has collection go on as far as it can now.
    pub(super) fn collect(&mut self, out: &mut Outbox) {
        loop {
            // What is live in a segment before, a snapshot needs too: nothing would be won.
            let pinned = self.head.snapshots_end().max(self.head.bases.end());
            let part = pinned..self.tail.durable().max(pinned);
            if let Some((sequence, data_start)) = self.collector.begin(&self.map, part) {
                let key = Key::Segment(sequence);
                out.get(Purpose::ReadVictim(sequence), key, data_start as usize);
            }
            self.move_blocks(out);
            let Some(victim) = &mut self.collector.victim else { return };
            let sequence = victim.sequence;
            while let Some(run) = victim.take_unread() {
                let stored = self.head.geometry.stored_bytes() as u64;
                let segment = self.map.segments().get(&sequence);
                let data_start = segment.map_or(0, |it| u64::from(it.data_start));
                let at = |index: u32| data_start + u64::from(index) * stored;
                let purpose =
                    Purpose::ReadLive { sequence, start: run.start, blocks: run.end - run.start };
                let range = at(run.start)..at(run.end);
                out.get_range(purpose, Key::Segment(sequence), range);
            }
            if !victim.is_over() {
                return;
            }
            self.collector.victim = None;
            out.errands.costs.segments_collected += 1;
            if mistake::makes(Mistake::DeleteMoved) {
                self.publication.delete(vec![sequence]);
            }
        }
    }

    /// Puts blocks that were read into the open segment, if they are still where they were. A
    /// flush that waits goes first, and no further segment gets any before that is durable.
    fn move_blocks(&mut self, out: &mut Outbox) {
        // In the log it would stand behind the place that is left out.
        if self.shrink.is_some() {
            return;
        }
        let next = self.tail.next();
        let is_here = self.collector.moved_into == next;
        if !self.flushes.is_empty() || !(is_here || self.tail.durable() > self.collector.moved_into)
        {
            return;
        }
        let max = self.collector.moved_max(&self.map, self.head.geometry);
        let Some(victim) = &mut self.collector.victim else { return };
        let mut moved = if is_here { self.collector.moved_blocks } else { 0 };
        while moved < max && self.tail.room() > 0 {
            let Some(Moved { block, index, data }) = victim.ready.pop_front() else { break };
            let is_live = self.map.extents().place(block) == Some((victim.sequence, index));
            if is_live || mistake::makes(Mistake::MoveOverNewer) {
                self.tail.write(&mut self.map, block, &data, out.now_ns);
                out.errands.costs.bytes_moved += data.len() as u64;
                moved += 1;
                self.collector.moved_into = next;
                self.collector.moved_blocks = moved;
            }
        }
    }

    /// Goes on with an answer to a GET of a segment that is collected.
    pub(super) fn victim_answered(
        &mut self,
        errand: Errand<Purpose>,
        answer: Answer,
        out: &mut Outbox,
    ) {
        let (sequence, run) = match errand.purpose {
            Purpose::ReadVictim(sequence) => (sequence, None),
            Purpose::ReadLive { sequence, start, blocks } => {
                (sequence, Some(start..start + blocks))
            }
            _ => return,
        };
        // Of a segment that was given up nothing is wanted any more.
        let current = self.collector.victim.as_mut().filter(|it| it.sequence == sequence);
        let Some(victim) = current else { return };
        match answer {
            Answer::Got { bytes, object_bytes, .. } => {
                let geometry = self.head.geometry;
                let taken = match run {
                    None => victim.take_header(&bytes, object_bytes, &self.map, &self.head),
                    Some(run) => {
                        let blocks = &victim.blocks[run.start as usize..run.end as usize];
                        let codec = self.head.codec(self.cipher.as_ref(), sequence);
                        let blocks = check(&bytes, blocks, run.start, codec, geometry);
                        blocks.map(|blocks| victim.take_blocks(blocks))
                    }
                };
                match taken {
                    Some(()) => {}
                    None if errand.damaged < DAMAGED_READS_MAX => {
                        out.errands.reread(errand, out.now_ns);
                    }
                    None => self.collector.give_up(),
                }
            }
            // All of it may have been written anew since, and the segment deleted.
            Answer::Missing => {
                let segment = self.map.segments().get(&sequence);
                if segment.is_some_and(|it| it.live > 0) {
                    judge("a segment is missing", out);
                }
                self.collector.victim = None;
            }
            _ => out.errands.again(errand, out.now_ns),
        }
    }
}

/// Returns blocks of a segment from index `start` on, if they are whole.
fn check(
    bytes: &[u8],
    blocks: &[u64],
    start: u32,
    codec: BlockCodec<'_>,
    geometry: Geometry,
) -> Option<Vec<Moved>> {
    let stored = geometry.stored_bytes();
    if bytes.len() != blocks.len() * stored {
        return None;
    }
    let each = bytes.chunks_exact(stored).zip(blocks).zip(start..);
    let moved = each.map(|((bytes, block), index)| {
        let mut data = Vec::with_capacity(stored);
        match codec.append(&mut data, bytes, *block) {
            Err(_) if mistake::makes(Mistake::MoveUnchecked) => {
                data.extend_from_slice(&bytes[..geometry.block_bytes as usize]);
            }
            appended => appended.ok()?,
        }
        Some(Moved { block: *block, index, data })
    });
    moved.collect()
}
