//! The part of the collection that uses the store and the tail: reads blocks and moves them.

use super::Serving;
use crate::block::BlockCodec;
use crate::collector::Moved;
use crate::errands::Errand;
use crate::geometry::Geometry;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Purpose};
use crate::recovery::DAMAGED_READS_MAX;
use crate::scan::MISSED_READS_MAX;
use crate::store::{Answer, Key};

/// The most bytes of moved blocks in a segment while a flush waits, if clients have written less
/// into the segment; more when garbage piles up.
const MOVED_BESIDE_BYTES: usize = 64 << 10;

impl Serving {
    pub(super) fn collect(&mut self, out: &mut Outbox) {
        loop {
            // Snapshots and bases keep the segments before `pinned`, so moving live blocks of these
            // segments would free nothing.
            let pinned = self.head.snapshots_end().max(self.head.bases.end());
            let part = pinned..self.tail.durable().max(pinned);
            let geometry = self.head.geometry;
            while let Some((sequence, data_start)) =
                self.collector.begin(&self.map, part.clone(), geometry)
            {
                let key = Key::Segment(sequence);
                out.get(Purpose::ReadVictim(sequence), key, data_start as usize);
            }
            self.move_blocks(out);
            self.read_live(out);
            let over = self.collector.victims.extract_if(.., |it| it.is_over());
            let over: Vec<u64> = over.map(|it| it.sequence).collect();
            if over.is_empty() {
                return;
            }
            out.errands.costs.segments_collected += over.len() as u64;
            if mistake::makes(Mistake::DeleteMoved) {
                self.publication.delete(over);
            }
        }
    }

    fn read_live(&mut self, out: &mut Outbox) {
        let stored = self.head.geometry.stored_bytes() as u64;
        for victim in &mut self.collector.victims {
            let sequence = victim.sequence;
            let segment = self.map.segments().get(&sequence);
            let data_start = segment.map_or(0, |it| u64::from(it.data_start));
            while let Some(run) = victim.take_unread() {
                let at = |index: u32| data_start + u64::from(index) * stored;
                let purpose =
                    Purpose::ReadLive { sequence, start: run.start, blocks: run.end - run.start };
                let range = at(run.start)..at(run.end);
                out.get_range(purpose, Key::Segment(sequence), range);
            }
        }
    }

    /// Puts blocks that were read into the open segment. No other segment gets moved blocks before
    /// the last segment with moved blocks is durable.
    fn move_blocks(&mut self, out: &mut Outbox) {
        // While the image becomes smaller, moved blocks would lie behind the place that the writer
        // leaves out of the log.
        if self.shrink.is_some() || self.closing.is_some() {
            return;
        }
        let next = self.tail.next();
        let is_here = self.collector.moved_into == next;
        if !is_here && self.tail.durable() <= self.collector.moved_into {
            return;
        }
        let max = match self.flushes.is_empty() {
            true => self.collector.moved_max(&self.map, self.head.geometry),
            false => self.moved_beside_flushes(),
        };
        let mut moved = self.collector.moved_in(next);
        for victim in &mut self.collector.victims {
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
    }

    /// Limits the moved blocks of a segment while a flush waits: few enough for a quick PUT, or as
    /// many as clients have written; more when garbage piles up.
    fn moved_beside_flushes(&self) -> usize {
        if mistake::makes(Mistake::StarveCollection) {
            return 0;
        }
        let written = self.tail.open_blocks() - self.collector.moved_in(self.tail.next());
        let few = MOVED_BESIDE_BYTES / self.head.geometry.block_bytes as usize;
        few.max(written) * self.collector.pressure(&self.map)
    }

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
        // The collector may have given up this segment.
        let Some(victim) = self.collector.victim(sequence) else { return };
        match answer {
            Answer::Got { bytes, object_bytes, .. } => {
                let geometry = self.head.geometry;
                let taken = match run {
                    None => victim.take_header(&bytes, object_bytes, &self.map, &self.head),
                    Some(run) => {
                        let blocks = &victim.blocks[run.start as usize..run.end as usize];
                        let codec = self.head.codec(self.cipher.as_ref(), sequence);
                        let is_live = |(block, index): (u64, u32)| {
                            self.map.extents().place(block) == Some((sequence, index))
                        };
                        let all = (&bytes[..], blocks, run.start);
                        let blocks = check(all, codec, geometry, is_live);
                        blocks.map(|blocks| victim.take_blocks(blocks))
                    }
                };
                match taken {
                    Some(()) => {}
                    None if errand.damaged < DAMAGED_READS_MAX => {
                        out.errands.reread(errand, out.now_ns);
                    }
                    None => {
                        out.note_loss(sequence, "damaged");
                        self.collector.give_up(sequence);
                    }
                }
            }
            // Newer changes may have replaced all blocks of the segment, so that this writer has
            // deleted it.
            Answer::Missing => {
                let segment = self.map.segments().get(&sequence);
                if segment.is_none_or(|it| it.live == 0) {
                    self.collector.victims.retain(|it| it.sequence != sequence);
                } else if errand.damaged < MISSED_READS_MAX {
                    out.errands.reread(errand, out.now_ns);
                } else {
                    // A client's read of the segment will find out whether the segment is lost or
                    // another writer has the image.
                    self.collector.give_up(sequence);
                }
            }
            _ => out.errands.again(errand, out.now_ns),
        }
    }
}

/// Returns the live blocks of a run from index `start` on; `None` if one is damaged or missing.
fn check(
    (bytes, blocks, start): (&[u8], &[u64], u32),
    codec: BlockCodec<'_>,
    geometry: Geometry,
    is_live: impl Fn((u64, u32)) -> bool,
) -> Option<Vec<Moved>> {
    let stored = geometry.stored_bytes();
    if bytes.len() != blocks.len() * stored {
        return None;
    }
    let each = bytes.chunks_exact(stored).zip(blocks).zip(start..);
    let each = each.filter(|((_, block), index)| {
        is_live((**block, *index)) || mistake::makes(Mistake::MoveOverNewer)
    });
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
