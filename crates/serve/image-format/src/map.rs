//! The map of an image: the place of each block, and how much of each segment is still live.

use crate::extents::{Extent, Extents};
use crate::segment::{Change, Record};
use std::collections::BTreeMap;
use std::ops::Range;

/// The use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// The offset of the data in the object, in bytes; 0 for the open segment and for a fence.
    pub data_start: u32,
    /// The number of data blocks.
    pub blocks: u32,
    /// The number of live blocks: the blocks that the image still has.
    pub live: u32,
    /// The place of the log at which the segment lost its last live block. 0 while it has one; its
    /// own place if it never had one.
    pub dead_since: u64,
}

impl SegmentUse {
    /// Returns `true` if the segment is a fence. For the open segment the result has no meaning.
    pub fn is_fence(&self) -> bool {
        self.data_start == 0 && self.blocks == 0
    }
}

/// The map of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    extents: Extents,
    segments: BTreeMap<u64, SegmentUse>,
    held: u64,
    live: u64,
    dead: u64,
}

impl Map {
    /// Returns the places of the blocks.
    pub fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Returns the segments that the map knows, by their place in the log.
    pub fn segments(&self) -> &BTreeMap<u64, SegmentUse> {
        &self.segments
    }

    /// Returns the segments without a live block, each with its [`SegmentUse::dead_since`].
    pub fn dead(&self) -> Vec<(u64, u64)> {
        let dead = self.segments.iter().filter(|(_, segment)| segment.live == 0);
        dead.map(|(sequence, segment)| (*sequence, segment.dead_since)).collect()
    }

    /// Returns the data blocks in segments with a live block, and how many of these are live.
    pub fn held_and_live(&self) -> (u64, u64) {
        (self.held, self.live)
    }

    /// Returns the number of data blocks in segments without a live block.
    pub fn dead_blocks(&self) -> u64 {
        self.dead
    }

    /// Adds a segment without data, unless the map has this segment.
    pub fn add(&mut self, sequence: u64) {
        let empty = SegmentUse { data_start: 0, blocks: 0, live: 0, dead_since: sequence };
        self.segments.entry(sequence).or_insert(empty);
    }

    /// Sets the offset of a segment's data.
    pub fn place_data(&mut self, sequence: u64, data_start: u32) {
        if let Some(segment) = self.segments.get_mut(&sequence) {
            segment.data_start = data_start;
        }
    }

    /// Removes a deleted segment.
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

    /// Records that the image's blocks from `block` on are now at the place `extent`.
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

    /// Records that a range of blocks becomes zeroes at place `by` of the log.
    pub fn discard(&mut self, range: Range<u64>, by: u64) {
        let Map { extents, segments, held, live, dead } = self;
        extents.remove(range, |gone| lose(segments, [held, live, dead], gone, by));
    }

    /// Applies the records of a segment.
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

    /// Adds a fence, which counts as a segment without live blocks.
    pub fn fence(&mut self, sequence: u64) {
        self.add(sequence);
    }

    /// Adds a segment of a checkpoint; the caller then adds the segment's live blocks by `write`.
    pub(crate) fn load_segment(&mut self, sequence: u64, segment: SegmentUse) {
        self.segments.insert(sequence, SegmentUse { live: 0, ..segment });
        self.dead += u64::from(segment.blocks);
    }
}

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
