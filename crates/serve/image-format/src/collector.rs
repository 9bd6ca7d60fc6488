//! Collection: what is live in segments that are mostly dead is written again, so that they can be
//! deleted as any segment without live blocks.
//!
//! ```text
//!   more garbage than is allowed ─▶ the emptiest segments ─▶ the header of one is read
//!     ─▶ runs of its live blocks are read and checked ─▶ they go into the open segment, unless
//!        they were written anew meanwhile
//! ```
//!
//! One segment is collected at a time, and some more when garbage piles up, as long as all of their
//! data are no more than one may have: so much is in memory. Not more than one
//! segment that is not durable has moved blocks: a flush waits for no more of them. While flushes
//! wait, which may be always, it has about as many as they have written themselves.

use crate::geometry::{DATA_BYTES_MAX, Geometry};
use crate::head::Head;
use crate::map::{Map, SegmentUse};
use crate::segment::{Change, Content, Header};
use std::collections::VecDeque;
use std::ops::Range;

/// How many runs of blocks are read at the same time.
const READS_MAX: usize = 4;

/// Dead blocks between live ones that are read with them, rather than by a further GET.
const GAP_BLOCKS_MAX: u32 = 16;

/// Most blocks of one GET.
const RUN_BLOCKS_MAX: u32 = 256;

/// Bytes of moved blocks in one segment; more when garbage piles up.
const MOVED_BYTES_MAX: usize = 1 << 20;

/// How many segments are collected at the same time: the first bytes of one come after a GET, the
/// others after a second one, and a small segment may be put in that time again and again.
const VICTIMS_MAX: usize = 16;

/// Percentages of the garbage that is allowed. For each one that the garbage exceeds, twice as much
/// is moved.
const PRESSURE: [u64; 4] = [103, 106, 109, 112];

/// What of the segments is looked at for candidates: one in so many is one.
const CANDIDATES_SHARE: usize = 64;

/// A block that was read, and its index in the segment that is collected.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) block: u64,
    pub(crate) index: u32,
    pub(crate) data: Vec<u8>,
}

/// The segment that is collected.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) sequence: u64,
    /// Which block of the image each block of its data is, when the header has been read.
    pub(crate) blocks: Vec<u64>,
    /// Runs of indices that were not asked for.
    unread: VecDeque<Range<u32>>,
    /// Runs that were asked for.
    reads: usize,
    /// Blocks that were read and wait for room.
    pub(crate) ready: VecDeque<Moved>,
    is_known: bool,
}

/// What is collected.
#[derive(Debug)]
pub(crate) struct Collector {
    /// Most garbage, in a hundred of what segments hold.
    garbage_percent: u64,
    /// The emptiest segments, the first of them last.
    candidates: Vec<u64>,
    pub(crate) victims: Vec<Victim>,
    /// Segments with blocks that are damaged: they stay.
    damaged: Vec<u64>,
    /// Segments that are to be sealed before candidates are looked for again.
    rest: usize,
    /// The last segment with moved blocks, and how many it has.
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

    /// Notes that a segment is sealed.
    pub(crate) fn count(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }

    /// Tells whether the garbage is more than `percent` percent of what is allowed.
    fn exceeds(&self, map: &Map, percent: u64) -> bool {
        let (held, live) = map.held_and_live();
        u128::from(held - live) * 10_000
            > u128::from(held) * u128::from(self.garbage_percent * percent)
    }

    /// How many times as much as usual is moved.
    pub(crate) fn pressure(&self, map: &Map) -> usize {
        1 << PRESSURE.iter().filter(|percent| self.exceeds(map, **percent)).count()
    }

    /// Tells whether a further segment, with `blocks` blocks, may be collected now.
    fn has_room(&self, map: &Map, blocks: u32, geometry: Geometry) -> bool {
        let of = |sequence: u64| map.segments().get(&sequence).map_or(0, |it| it.blocks);
        let all = self.victims.iter().map(|victim| of(victim.sequence)).sum::<u32>() + blocks;
        self.victims.is_empty()
            || self.victims.len() < self.pressure(map).min(VICTIMS_MAX)
                && all <= geometry.segment_blocks_max()
    }

    /// Returns the next segment that is to be collected, of those from `pinned` to `durable`, and
    /// where its data begin.
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

    /// Looks for the segments with the fewest live blocks.
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

    /// Tells whether a segment is collected already, or cannot be.
    fn is_known(&self, sequence: u64) -> bool {
        self.damaged.contains(&sequence) || self.victims.iter().any(|it| it.sequence == sequence)
    }

    /// Returns a segment that is collected.
    pub(crate) fn victim(&mut self, sequence: u64) -> Option<&mut Victim> {
        self.victims.iter_mut().find(|it| it.sequence == sequence)
    }

    /// Most moved blocks of one segment.
    pub(crate) fn moved_max(&self, map: &Map, geometry: Geometry) -> usize {
        let bytes = if self.exceeds(map, 150) { DATA_BYTES_MAX } else { MOVED_BYTES_MAX };
        bytes / geometry.block_bytes as usize
    }

    /// How many moved blocks a segment has.
    pub(crate) fn moved_in(&self, sequence: u64) -> usize {
        if self.moved_into == sequence { self.moved_blocks } else { 0 }
    }

    /// Gives a segment up; it stays.
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

    /// Takes the header, and finds what is live. `None` if it is damaged.
    pub(crate) fn take_header(
        &mut self,
        bytes: &[u8],
        object_bytes: u64,
        map: &Map,
        head: &Head,
    ) -> Option<()> {
        // It may have blocks that were cut off since.
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

    /// Returns blocks that are to be read now.
    pub(crate) fn take_unread(&mut self) -> Option<Range<u32>> {
        if self.reads >= READS_MAX {
            return None;
        }
        let run = self.unread.pop_front()?;
        self.reads += 1;
        Some(run)
    }

    /// Takes blocks that were read.
    pub(crate) fn take_blocks(&mut self, blocks: Vec<Moved>) {
        self.reads -= 1;
        self.ready.extend(blocks);
    }

    /// Tells whether nothing is left of it to move.
    pub(crate) fn is_over(&self) -> bool {
        self.is_known && self.unread.is_empty() && self.reads == 0 && self.ready.is_empty()
    }
}
