//! The map of an image: which block is where, and how much of each segment is still needed.

use crate::extents::{Extent, Extents};
use crate::segment::{Change, Record};
use std::collections::BTreeMap;
use std::ops::Range;

/// What is known of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Where its data begin, in bytes.
    pub data_start: u32,
    /// How many blocks of data it has.
    pub blocks: u32,
    /// How many of them the image still has.
    pub live: u32,
    /// The segment that has taken the last of these away, when there is none.
    pub dead_since: u64,
}

impl SegmentUse {
    /// Tells whether it is a fence.
    pub fn is_fence(&self) -> bool {
        self.data_start == 0 && self.blocks == 0
    }
}

/// The map of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    extents: Extents,
    segments: BTreeMap<u64, SegmentUse>,
    /// Blocks of data in segments that have a live one, and how many of them are live.
    held: u64,
    live: u64,
    /// Blocks of data in segments without a live one.
    dead: u64,
}

impl Map {
    /// Returns where blocks are.
    pub fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Returns the segments that were not deleted, by their place in the log.
    pub fn segments(&self) -> &BTreeMap<u64, SegmentUse> {
        &self.segments
    }

    /// Returns the segments without a live block, and since which one of the log each has none.
    pub fn dead(&self) -> Vec<(u64, u64)> {
        let dead = self.segments.iter().filter(|(_, segment)| segment.live == 0);
        dead.map(|(sequence, segment)| (*sequence, segment.dead_since)).collect()
    }

    /// Returns how many blocks of data segments have that cannot be deleted, since one of theirs is
    /// live, and how many of these the image still has.
    pub fn held_and_live(&self) -> (u64, u64) {
        (self.held, self.live)
    }

    /// Returns how many blocks of data the segments without a live one have.
    pub fn dead_blocks(&self) -> u64 {
        self.dead
    }

    /// Notes a segment that gets data.
    pub fn add(&mut self, sequence: u64) {
        let empty = SegmentUse { data_start: 0, blocks: 0, live: 0, dead_since: sequence };
        self.segments.entry(sequence).or_insert(empty);
    }

    /// Notes where the data of a segment begin.
    pub fn place_data(&mut self, sequence: u64, data_start: u32) {
        if let Some(segment) = self.segments.get_mut(&sequence) {
            segment.data_start = data_start;
        }
    }

    /// Forgets a segment that is deleted.
    pub fn forget(&mut self, sequence: u64) {
        if let Some(segment) = self.segments.remove(&sequence) {
            match segment.live {
                0 => self.dead -= u64::from(segment.blocks),
                live => {
                    self.held -= u64::from(segment.blocks);
                    self.live -= u64::from(live);
                }
            }
        }
    }

    /// Notes that blocks are the next data of a segment, from `index` of them on.
    pub fn write(&mut self, block: u64, extent: Extent) {
        let Map { extents, segments, held, live, dead } = self;
        let by = extent.sequence;
        extents.insert(block, extent, |gone| lose(segments, [held, live, dead], gone, by));
        if let Some(segment) = segments.get_mut(&extent.sequence) {
            let before = if segment.live > 0 { segment.blocks } else { 0 };
            *dead -= u64::from(segment.blocks - before);
            segment.blocks = segment.blocks.max(extent.index + extent.blocks);
            segment.live += extent.blocks;
            segment.dead_since = 0;
            *held += u64::from(segment.blocks - before);
            *live += u64::from(extent.blocks);
        }
    }

    /// Notes that blocks are zeroes, as a segment says.
    pub fn discard(&mut self, range: Range<u64>, by: u64) {
        let Map { extents, segments, held, live, dead } = self;
        extents.remove(range, |gone| lose(segments, [held, live, dead], gone, by));
    }

    /// Does what a segment of the log says.
    pub fn replay(&mut self, sequence: u64, data_start: u32, records: &[Record]) {
        self.add(sequence);
        self.place_data(sequence, data_start);
        let mut index = 0;
        for &Record { block, blocks, change } in records {
            match change {
                Change::Zero => self.discard(block..block + u64::from(blocks), sequence),
                Change::Data => {
                    self.write(block, Extent { blocks, index, sequence });
                    index += blocks;
                }
            }
        }
    }

    /// Notes a fence: a segment without data, which is deleted as others are.
    pub fn fence(&mut self, sequence: u64) {
        self.add(sequence);
    }

    /// Adds a segment of a checkpoint, before its live blocks.
    pub(crate) fn load_segment(&mut self, sequence: u64, segment: SegmentUse) {
        self.segments.insert(sequence, SegmentUse { live: 0, ..segment });
        self.dead += u64::from(segment.blocks);
    }
}

/// Takes blocks of a segment away, as segment `by` says.
fn lose(
    segments: &mut BTreeMap<u64, SegmentUse>,
    [held, live, dead]: [&mut u64; 3],
    gone: Extent,
    by: u64,
) {
    if let Some(segment) = segments.get_mut(&gone.sequence) {
        segment.live -= gone.blocks;
        *live -= u64::from(gone.blocks);
        if segment.live == 0 {
            segment.dead_since = by;
            *held -= u64::from(segment.blocks);
            *dead += u64::from(segment.blocks);
        }
    }
}
