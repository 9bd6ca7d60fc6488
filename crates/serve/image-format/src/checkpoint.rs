//! Checkpoints: the map of an image as objects, so that a reader need not read the whole log.
//!
//! ```text
//!   part  stamp │ its number 4
//!         │ segments: 4, then each: place 8, where data begin 4, blocks 4, dead since 8
//!         │ extents: 4, then each: first block 8, blocks 4, index 4, segment 8 │ checksum 4
//! ```
//!
//! `dead since` is 0 while a segment has a live block. Otherwise it is the place of the log at
//! which the segment lost its last live block; for a segment that never had one, its own place.
//! Segments and extents ascend from part to part.

use crate::extents::Extent;
use crate::geometry::Geometry;
use crate::head::Head;
use crate::map::{Map, SegmentUse};
use crate::segment::HEADER_BYTES_MAX;
use crate::stamp::{ImageId, Kind, Nonce, Stamp};
use crate::wire::{Damage, checked, put_count, seal};

/// The longest part, in bytes; a reader refuses a longer one. Earlier writers put up to
/// 400,000 entries into a part.
pub const PART_BYTES_MAX: usize = 10 << 20;

/// The most segments and extents of a part, in all.
const ENTRIES_MAX: usize = 200_000;

const SEGMENT_BYTES: usize = 24;
const EXTENT_BYTES: usize = 24;

/// `live` is 0 here: the extents show the live blocks.
type SegmentEntry = (u64, SegmentUse);

/// A part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of the image.
    pub image: ImageId,
    /// The epoch of the writer.
    pub epoch: u64,
    /// The writer.
    pub writer: Nonce,
    /// The first segment of the log that is not in the map.
    pub position: u64,
    /// The number of the part.
    pub number: u32,
    segments: Vec<SegmentEntry>,
    extents: Vec<(u64, Extent)>,
}

impl Part {
    /// Returns the parts of `map`, which contains all segments before `position`. The parts name
    /// the writer of `head`. An empty map has no parts.
    pub fn of(map: &Map, head: &Head, position: u64) -> Vec<Part> {
        let (image, epoch, writer) = (head.image, head.epoch, head.writer.nonce);
        let loaded = |(at, it): (&u64, &SegmentUse)| (*at, SegmentUse { live: 0, ..*it });
        let segments: Vec<SegmentEntry> = map.segments().iter().map(loaded).collect();
        let extents: Vec<(u64, Extent)> = map.extents().iter().collect();
        let (mut segments, mut extents) = (&segments[..], &extents[..]);
        let mut parts = Vec::new();
        while !segments.is_empty() || !extents.is_empty() {
            let number = parts.len() as u32;
            let segments = take(&mut segments, ENTRIES_MAX);
            let extents = take(&mut extents, ENTRIES_MAX - segments.len());
            parts.push(Part { image, epoch, writer, position, number, segments, extents });
        }
        parts
    }

    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (image, epoch, number) = (self.image, self.epoch, self.position);
        let (kind, is_encrypted, writer) = (Kind::Part, false, self.writer);
        Stamp { kind, is_encrypted, image, epoch, number, writer }.put(&mut bytes);
        bytes.extend(self.number.to_le_bytes());
        put_count(&mut bytes, self.segments.len());
        for (sequence, segment) in &self.segments {
            bytes.extend(sequence.to_le_bytes());
            bytes.extend(segment.data_start.to_le_bytes());
            bytes.extend(segment.blocks.to_le_bytes());
            bytes.extend(segment.dead_since.to_le_bytes());
        }
        put_count(&mut bytes, self.extents.len());
        for (block, extent) in &self.extents {
            bytes.extend(block.to_le_bytes());
            bytes.extend(extent.blocks.to_le_bytes());
            bytes.extend(extent.index.to_le_bytes());
            bytes.extend(extent.sequence.to_le_bytes());
        }
        seal(&mut bytes);
        bytes
    }

    /// Parses an object.
    ///
    /// # Errors
    /// The object is not a part of a checkpoint.
    pub fn parse(object: &[u8]) -> Result<Part, Damage> {
        if object.len() > PART_BYTES_MAX {
            return Err(Damage("longer than a part of a map"));
        }
        let (stamp, mut fields) = Stamp::begin(checked(object)?, Kind::Part)?;
        let number = fields.u32()?;
        let mut segments = Vec::with_capacity(fields.count(SEGMENT_BYTES)?);
        for _ in 0..segments.capacity() {
            let (sequence, data_start, blocks) = (fields.u64()?, fields.u32()?, fields.u32()?);
            let dead_since = fields.u64()?;
            segments.push((sequence, SegmentUse { data_start, blocks, live: 0, dead_since }));
        }
        let mut extents = Vec::with_capacity(fields.count(EXTENT_BYTES)?);
        for _ in 0..extents.capacity() {
            let block = fields.u64()?;
            let (blocks, index, sequence) = (fields.u32()?, fields.u32()?, fields.u64()?);
            extents.push((block, Extent { blocks, index, sequence }));
        }
        fields.end()?;
        let Stamp { image, epoch, number: position, writer, .. } = stamp;
        Ok(Part { image, epoch, writer, position, number, segments, extents })
    }
}

/// Takes the first `count` entries, or all if there are fewer.
fn take<T: Copy>(entries: &mut &[T], count: usize) -> Vec<T> {
    let (front, rest) = entries.split_at(entries.len().min(count));
    *entries = rest;
    front.to_vec()
}

/// Makes the map from all parts of the checkpoint at `position`, which are in their order.
///
/// # Errors
/// The parts do not form a map of an image with this geometry.
pub fn assemble(parts: &[Part], position: u64, geometry: Geometry) -> Result<Map, Damage> {
    let mut map = Map::default();
    let mut next_segment = 1;
    for (sequence, segment) in parts.iter().flat_map(|part| &part.segments).copied() {
        let ordered = sequence >= next_segment && sequence < position;
        if !ordered || segment.blocks > geometry.segment_blocks_max() {
            return Err(Damage("segments out of order"));
        }
        if segment.data_start as usize > HEADER_BYTES_MAX {
            return Err(Damage("the data of a segment begin beyond the longest header"));
        }
        map.load_segment(sequence, segment);
        next_segment = sequence + 1;
    }
    let mut next_block = 0;
    for (block, extent) in parts.iter().flat_map(|part| &part.extents).copied() {
        let end = block.checked_add(u64::from(extent.blocks));
        let inside = end.is_some_and(|end| end <= geometry.blocks());
        if block < next_block || extent.blocks == 0 || !inside {
            return Err(Damage("extents out of order"));
        }
        let segment = map.segments().get(&extent.sequence);
        let (data_end, live) = (extent.index.checked_add(extent.blocks), extent.blocks);
        let fits = |end, of: SegmentUse| end <= of.blocks && live <= of.blocks - of.live;
        if !segment.zip(data_end).is_some_and(|(of, end)| fits(end, *of)) {
            return Err(Damage("an extent beyond its segment, or two extents with the same data"));
        }
        if segment.is_some_and(|it| it.dead_since > 0 && it.live == 0) {
            return Err(Damage("a segment is marked dead, but has live blocks"));
        }
        map.write(block, extent);
        next_block = block + u64::from(extent.blocks);
    }
    let died = |(sequence, it): (&u64, &SegmentUse)| {
        it.live > 0 || (*sequence..position).contains(&it.dead_since)
    };
    match map.segments().iter().all(died) {
        true => Ok(map),
        false => Err(Damage("a segment without live blocks is not marked dead")),
    }
}
