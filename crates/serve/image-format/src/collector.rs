//! Collection: the writer moves the live blocks of segments with many dead blocks into new
//! segments, so that it can delete the old segments like any segment without live blocks.
//!
//! ```text
//!   more garbage than allowed ─▶ the emptiest segments ─▶ the header of a segment is read
//!     ─▶ runs of its live blocks are read and checked ─▶ these blocks go into the open segment,
//!        unless newer changes have replaced them
//! ```
//!
//! The collector handles one segment at a time, and more when garbage piles up. The data of these
//! segments together do not exceed the largest segment: that bounds the memory. At most one segment
//! that is not durable contains moved blocks, so a flush waits for one such segment at most.

use crate::geometry::{DATA_BYTES_MAX, Geometry};
use crate::head::Head;
use crate::map::{Map, SegmentUse};
use crate::segment::{Change, Content, Header};
use std::collections::VecDeque;
use std::ops::Range;

/// The most runs of one segment's blocks that are read at the same time.
const READS_MAX: usize = 4;

/// The most dead blocks that one GET reads between two live blocks.
const GAP_BLOCKS_MAX: u32 = 16;

const RUN_BLOCKS_MAX: u32 = 256;

/// The most bytes of moved blocks in one segment while no flush waits. Once the garbage exceeds one
/// and a half times the allowed garbage, there is no such limit.
const MOVED_BYTES_MAX: usize = 1 << 20;

/// The most segments that are collected at the same time. One segment is not enough: the first
/// blocks of a segment arrive only after two GETs, and meanwhile the writer may put many small
/// segments.
const VICTIMS_MAX: usize = 16;

/// Percentages of the allowed garbage. Each percentage that the garbage exceeds doubles
/// [`Collector::pressure`].
const PRESSURE: [u64; 4] = [103, 106, 109, 112];

/// A search makes at most one in this many segments a candidate; of fewer segments, at most one.
const CANDIDATES_SHARE: usize = 64;

#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) block: u64,
    pub(crate) index: u32,
    pub(crate) data: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) sequence: u64,
    /// The image block of each data block of the segment, once the header was read.
    pub(crate) blocks: Vec<u64>,
    unread: VecDeque<Range<u32>>,
    reads: usize,
    pub(crate) ready: VecDeque<Moved>,
    is_known: bool,
}

#[derive(Debug)]
pub(crate) struct Collector {
    /// The most garbage, as a percentage of the blocks in segments that have a live block.
    garbage_percent: u64,
    /// The segments with the lowest share of live blocks, the emptiest last.
    candidates: Vec<u64>,
    pub(crate) victims: Vec<Victim>,
    /// Damaged or missing segments, which the collector has given up.
    damaged: Vec<u64>,
    /// The number of segments that the writer must seal before the next search for candidates.
    rest: usize,
    /// The place of the last segment with moved blocks.
    pub(crate) moved_into: u64,
    pub(crate) moved_blocks: usize,
}

impl Collector {
    pub(crate) fn new(garbage_percent: u32) -> Collector {
        Collector {
            garbage_percent: u64::from(garbage_percent),
            candidates: Vec::new(),
            victims: Vec::new(),
            damaged: Vec::new(),
            rest: 0,
            moved_into: 0,
            moved_blocks: 0,
        }
    }

    pub(crate) fn count(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }

    fn exceeds(&self, map: &Map, percent: u64) -> bool {
        let (held, live) = map.held_and_live();
        u128::from(held - live) * 10_000
            > u128::from(held) * u128::from(self.garbage_percent * percent)
    }

    /// Returns a factor from 1 to 16 for the number of segments that are collected at the same
    /// time, and for the number of blocks that the collector moves while a flush waits.
    pub(crate) fn pressure(&self, map: &Map) -> usize {
        1 << PRESSURE.iter().filter(|percent| self.exceeds(map, **percent)).count()
    }

    fn has_room(&self, map: &Map, blocks: u32, geometry: Geometry) -> bool {
        let of = |sequence: u64| map.segments().get(&sequence).map_or(0, |it| it.blocks);
        let all = self.victims.iter().map(|victim| of(victim.sequence)).sum::<u32>() + blocks;
        self.victims.is_empty()
            || self.victims.len() < self.pressure(map).min(VICTIMS_MAX)
                && all <= geometry.segment_blocks_max()
    }

    /// Begins the collection of one segment, if garbage and memory allow it. Returns the segment's
    /// place, and the offset of its data.
    pub(crate) fn begin(
        &mut self,
        map: &Map,
        part: Range<u64>,
        geometry: Geometry,
    ) -> Option<(u64, u32)> {
        if !self.exceeds(map, 100) || !self.has_room(map, 0, geometry) {
            return None;
        }
        if self.candidates.is_empty() {
            if self.rest > 0 {
                return None;
            }
            self.look(map, part.clone());
        }
        while let Some(sequence) = self.candidates.pop() {
            let segment = map.segments().get(&sequence).filter(|it| it.live > 0);
            let Some(segment) = segment.filter(|_| part.contains(&sequence)) else { continue };
            if !self.has_room(map, segment.blocks, geometry) {
                self.candidates.push(sequence);
                return None;
            }
            self.victims.push(Victim::new(sequence));
            return Some((sequence, segment.data_start));
        }
        None
    }

    fn look(&mut self, map: &Map, part: Range<u64>) {
        let share = |it: &SegmentUse| u64::from(it.live) * 1000 / u64::from(it.blocks.max(1));
        let emptier =
            |it: &SegmentUse| it.live > 0 && share(it) <= 1000 - 10 * self.garbage_percent;
        let all = map
            .segments()
            .range(part)
            .filter(|(sequence, it)| emptier(it) && !self.is_known(**sequence));
        let mut all: Vec<(u64, u64)> = all.map(|(sequence, it)| (share(it), *sequence)).collect();
        let count = (map.segments().len() / CANDIDATES_SHARE).max(1);
        if all.len() > count {
            all.select_nth_unstable(count - 1);
            all.truncate(count);
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        self.rest = if all.is_empty() { count } else { 0 };
        self.candidates = all.into_iter().map(|(_, sequence)| sequence).collect();
    }

    fn is_known(&self, sequence: u64) -> bool {
        self.damaged.contains(&sequence) || self.victims.iter().any(|it| it.sequence == sequence)
    }

    pub(crate) fn victim(&mut self, sequence: u64) -> Option<&mut Victim> {
        self.victims.iter_mut().find(|it| it.sequence == sequence)
    }

    pub(crate) fn moved_max(&self, map: &Map, geometry: Geometry) -> usize {
        let bytes = if self.exceeds(map, 150) { DATA_BYTES_MAX } else { MOVED_BYTES_MAX };
        bytes / geometry.block_bytes as usize
    }

    pub(crate) fn moved_in(&self, sequence: u64) -> usize {
        if self.moved_into == sequence { self.moved_blocks } else { 0 }
    }

    /// Gives up the collection of a segment, for as long as this writer has the image.
    pub(crate) fn give_up(&mut self, sequence: u64) {
        self.victims.retain(|it| it.sequence != sequence);
        self.damaged.push(sequence);
    }
}

impl Victim {
    fn new(sequence: u64) -> Victim {
        let (unread, ready) = (VecDeque::new(), VecDeque::new());
        Victim { sequence, blocks: Vec::new(), unread, reads: 0, ready, is_known: false }
    }

    pub(crate) fn take_header(
        &mut self,
        bytes: &[u8],
        object_bytes: u64,
        map: &Map,
        head: &Head,
    ) -> Option<()> {
        // The header may name blocks behind the present end of the image, which was larger then.
        let geometry = head.geometry.any_size();
        let (header, _) = Header::parse(bytes, object_bytes, geometry).ok()?;
        let Content::Changes(records) = header.content else { return None };
        if (header.image, header.sequence) != (head.image, self.sequence) {
            return None;
        }
        let data = records.iter().filter(|record| record.change == Change::Data);
        self.blocks = data.flat_map(|it| it.block..it.block + u64::from(it.blocks)).collect();
        for (index, block) in (0..).zip(&self.blocks) {
            if map.extents().place(*block) != Some((self.sequence, index)) {
                continue;
            }
            match self.unread.back_mut() {
                Some(run)
                    if index - run.end <= GAP_BLOCKS_MAX && index - run.start < RUN_BLOCKS_MAX =>
                {
                    run.end = index + 1;
                }
                _ => self.unread.push_back(index..index + 1),
            }
        }
        self.is_known = true;
        Some(())
    }

    pub(crate) fn take_unread(&mut self) -> Option<Range<u32>> {
        if self.reads >= READS_MAX {
            return None;
        }
        let run = self.unread.pop_front()?;
        self.reads += 1;
        Some(run)
    }

    pub(crate) fn take_blocks(&mut self, blocks: Vec<Moved>) {
        self.reads -= 1;
        self.ready.extend(blocks);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_known && self.unread.is_empty() && self.reads == 0 && self.ready.is_empty()
    }
}
