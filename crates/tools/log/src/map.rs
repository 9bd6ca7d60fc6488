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
}

/// The map of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    extents: Extents,
    segments: BTreeMap<u64, SegmentUse>,
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

    /// Returns the segments without a live block.
    pub fn dead(&self) -> Vec<u64> {
        let dead = self.segments.iter().filter(|(_, segment)| segment.live == 0);
        dead.map(|(sequence, _)| *sequence).collect()
    }

    /// Notes a segment that gets data.
    pub fn add(&mut self, sequence: u64) {
        self.segments.entry(sequence).or_insert(SegmentUse { data_start: 0, blocks: 0, live: 0 });
    }

    /// Notes where the data of a segment begin.
    pub fn place_data(&mut self, sequence: u64, data_start: u32) {
        if let Some(segment) = self.segments.get_mut(&sequence) {
            segment.data_start = data_start;
        }
    }

    /// Forgets a segment that is deleted.
    pub fn forget(&mut self, sequence: u64) {
        self.segments.remove(&sequence);
    }

    /// Notes that blocks are the next data of a segment, from `index` of them on.
    pub fn write(&mut self, block: u64, extent: Extent) {
        let Map { extents, segments } = self;
        extents.insert(block, extent, |gone| lose(segments, gone));
        if let Some(segment) = segments.get_mut(&extent.sequence) {
            segment.blocks = segment.blocks.max(extent.index + extent.blocks);
            segment.live += extent.blocks;
        }
    }

    /// Notes that blocks are zeroes.
    pub fn discard(&mut self, range: Range<u64>) {
        let Map { extents, segments } = self;
        extents.remove(range, |gone| lose(segments, gone));
    }

    /// Does what a segment of the log says.
    pub fn replay(&mut self, sequence: u64, data_start: u32, records: &[Record]) {
        self.add(sequence);
        self.place_data(sequence, data_start);
        let mut index = 0;
        for &Record { block, blocks, change } in records {
            match change {
                Change::Zero => self.discard(block..block + u64::from(blocks)),
                Change::Data => {
                    self.write(block, Extent { blocks, index, sequence });
                    index += blocks;
                }
            }
        }
    }

    /// Adds what a checkpoint says of segments: `(place, where data begin, blocks)`.
    pub(crate) fn load_segment(&mut self, sequence: u64, data_start: u32, blocks: u32) {
        self.segments.insert(sequence, SegmentUse { data_start, blocks, live: 0 });
    }
}

fn lose(segments: &mut BTreeMap<u64, SegmentUse>, gone: Extent) {
    if let Some(segment) = segments.get_mut(&gone.sequence) {
        segment.live -= gone.blocks;
    }
}
