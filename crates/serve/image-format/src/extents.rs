//! The places of an image's blocks, as extents of the data of segments.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks that are adjacent in the image and in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of blocks.
    pub blocks: u32,
    /// The index of the first block among the data blocks of its segment.
    pub index: u32,
    /// The place of the segment in the log.
    pub sequence: u64,
}

impl Extent {
    fn from(self, skip: u64) -> Extent {
        Extent { blocks: self.blocks - skip as u32, index: self.index + skip as u32, ..self }
    }

    fn adjoins(self, next: Extent) -> bool {
        self.sequence == next.sequence
            && self.index.checked_add(self.blocks) == Some(next.index)
            && self.blocks.checked_add(next.blocks).is_some()
    }
}

/// Adjacent blocks of the image, and their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first block.
    pub block: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The place of the blocks; `None`: they are zeroes.
    pub extent: Option<Extent>,
}

/// The extents of an image, by their first block. Extents do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    tree: BTreeMap<u64, Extent>,
}

impl Extents {
    /// Inserts an extent at `block`. Calls `gone` with each part of an extent that it replaces.
    pub fn insert(&mut self, block: u64, extent: Extent, gone: impl FnMut(Extent)) {
        let end = block + u64::from(extent.blocks);
        self.remove(block..end, gone);
        let (mut block, mut extent) = (block, extent);
        let before = self.tree.range(..block).next_back().map(|(at, it)| (*at, *it));
        if let Some((at, it)) = before.filter(|(at, it)| at + u64::from(it.blocks) == block)
            && it.adjoins(extent)
        {
            (block, extent) = (at, Extent { blocks: it.blocks + extent.blocks, ..it });
        }
        if let Some(next) = self.tree.get(&end).copied().filter(|next| extent.adjoins(*next)) {
            self.tree.remove(&end);
            extent.blocks += next.blocks;
        }
        self.tree.insert(block, extent);
    }

    /// Removes the extents of a range, or their parts in it; calls `gone` with each removed part.
    pub fn remove(&mut self, range: Range<u64>, mut gone: impl FnMut(Extent)) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        while let Some((&at, &extent)) = self.tree.range(range.clone()).next() {
            self.tree.remove(&at);
            gone(extent);
        }
    }

    fn split(&mut self, block: u64) {
        let Some((&at, extent)) = self.tree.range_mut(..block).next_back() else { return };
        let skip = block - at;
        if skip < u64::from(extent.blocks) {
            let rest = extent.from(skip);
            extent.blocks = skip as u32;
            self.tree.insert(block, rest);
        }
    }

    /// Returns the places of all blocks of a range, in order.
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        let before = self.tree.range(..range.start).next_back();
        for (&block, &extent) in before.into_iter().chain(self.tree.range(range.clone())) {
            let end = (block + u64::from(extent.blocks)).min(range.end);
            if end <= at {
                continue;
            }
            let from = block.max(at);
            if from > at {
                pieces.push(Piece { block: at, blocks: from - at, extent: None });
            }
            let blocks = end - from;
            let extent = Extent { blocks: blocks as u32, ..extent.from(from - block) };
            pieces.push(Piece { block: from, blocks, extent: Some(extent) });
            at = end;
        }
        if at < range.end {
            pieces.push(Piece { block: at, blocks: range.end - at, extent: None });
        }
        pieces
    }

    /// Returns the first runs of stored and of zero blocks in a range, at most `max` runs. A run is
    /// the block behind its last block, and `true` if its blocks are stored.
    pub fn runs(&self, range: Range<u64>, max: usize) -> Vec<(u64, bool)> {
        let mut runs: Vec<(u64, bool)> = Vec::new();
        let mut at = range.start;
        let before = self.tree.range(..range.start).next_back();
        for (&block, extent) in before.into_iter().chain(self.tree.range(range.clone())) {
            let end = (block + u64::from(extent.blocks)).min(range.end);
            if end <= at {
                continue;
            }
            if block > at {
                runs.push((block, false));
            }
            let is_full = runs.len() >= max;
            match runs.last_mut() {
                Some(last) if last.1 => last.0 = end,
                _ if is_full => break,
                _ => runs.push((end, true)),
            }
            at = end;
        }
        if at < range.end && runs.len() < max {
            runs.push((range.end, false));
        }
        runs.truncate(max);
        runs
    }

    /// Returns segment and index of a block's data; `None`: the block is zeroes.
    pub fn place(&self, block: u64) -> Option<(u64, u32)> {
        let (at, extent) = self.tree.range(..=block).next_back()?;
        let skip = block - at;
        (skip < u64::from(extent.blocks)).then(|| (extent.sequence, extent.index + skip as u32))
    }

    /// Returns `true` if no block of a range is stored: all are zeroes.
    pub fn is_empty_in(&self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let before = self.tree.range(..range.start).next_back();
        let reaches = before.is_some_and(|(at, it)| at + u64::from(it.blocks) > range.start);
        !reaches && self.tree.range(range).next().is_none()
    }

    /// Returns all extents, in the order of the image.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.tree.iter().map(|(block, extent)| (*block, *extent))
    }

    /// Returns the extents from the one that contains `block` on, or else from the next one on.
    pub fn iter_from(&self, block: u64) -> impl Iterator<Item = (u64, Extent)> + '_ {
        let before = self.tree.range(..block).next_back();
        let reaches = before.filter(|(at, it)| *at + u64::from(it.blocks) > block);
        reaches.into_iter().chain(self.tree.range(block..)).map(|(at, it)| (*at, *it))
    }

    /// Returns the number of extents.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Returns `true` if no block of the image is stored: all are zeroes.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: u64 = 48;

    type Model = Vec<Option<(u64, u32)>>;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64, u32, u32, u64),
        Remove(u64, u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        // Few segments and close indices, so that extents often adjoin.
        let place = (0..BLOCKS, 1..10u32, 0..20u32, 1..4u64);
        let insert = place.prop_filter("within", |it| it.0 + u64::from(it.1) <= BLOCKS);
        prop_oneof![
            3 => insert.prop_map(|(block, blocks, index, of)| Op::Insert(block, blocks, index, of)),
            1 => (0..BLOCKS, 0..=BLOCKS).prop_map(|(a, b)| Op::Remove(a.min(b), a.max(b))),
        ]
    }

    fn places(gone: &mut Vec<(u64, u32)>, extent: Extent) {
        gone.extend((0..extent.blocks).map(|skip| (extent.sequence, extent.index + skip)));
    }

    fn apply(op: &Op, extents: &mut Extents, model: &mut Model) -> [Vec<(u64, u32)>; 2] {
        let mut gone = Vec::new();
        let range = match *op {
            Op::Insert(block, blocks, index, sequence) => {
                let extent = Extent { blocks, index, sequence };
                extents.insert(block, extent, |it| places(&mut gone, it));
                block as usize..block as usize + blocks as usize
            }
            Op::Remove(start, end) => {
                extents.remove(start..end, |it| places(&mut gone, it));
                start as usize..end as usize
            }
        };
        let expected = model[range.clone()].iter().flatten().copied().collect();
        for (skip, place) in model[range].iter_mut().enumerate() {
            *place = match *op {
                Op::Insert(_, _, index, sequence) => Some((sequence, index + skip as u32)),
                Op::Remove(..) => None,
            };
        }
        [gone, expected]
    }

    proptest! {
        #[test]
        fn extents_agree_with_a_table_of_blocks(
            ops in prop::collection::vec(op(), 0..60),
            start in 0..BLOCKS,
            len in 0..BLOCKS,
        ) {
            let mut extents = Extents::default();
            let mut model: Model = vec![None; BLOCKS as usize];
            for op in &ops {
                let [gone, expected] = apply(op, &mut extents, &mut model);
                prop_assert_eq!(gone, expected);
            }
            for (block, place) in model.iter().enumerate() {
                prop_assert_eq!(extents.place(block as u64), *place);
            }
            let all = extents.iter().filter(|(at, it)| at + u64::from(it.blocks) > start);
            prop_assert!(extents.iter_from(start).eq(all));
            let range = start..(start + len).min(BLOCKS);
            let mut at = range.start;
            for piece in extents.pieces(range.clone()) {
                prop_assert_eq!(piece.block, at);
                for skip in 0..piece.blocks {
                    let place = piece.extent.map(|it| (it.sequence, it.index + skip as u32));
                    prop_assert_eq!(place, model[(at + skip) as usize]);
                }
                at += piece.blocks;
            }
            prop_assert_eq!(at, range.end);
            for max in [1, 2, 3, BLOCKS as usize] {
                let mut at = range.start;
                let runs = extents.runs(range.clone(), max);
                prop_assert!(runs.len() <= max && (runs.is_empty() == range.is_empty()));
                for pair in runs.windows(2) {
                    prop_assert!(pair[0].1 != pair[1].1, "two of a kind meet");
                }
                for (end, has_data) in &runs {
                    let mut blocks = model[at as usize..*end as usize].iter();
                    prop_assert!(*end > at && blocks.all(|it| it.is_some() == *has_data));
                    at = *end;
                }
                prop_assert!(at == range.end || runs.len() == max);
            }
            let empty = model[range.start as usize..range.end as usize].iter().all(Option::is_none);
            prop_assert_eq!(extents.is_empty_in(range), empty);
        }
    }

    #[test]
    fn writes_in_order_are_one_extent() {
        let mut extents = Extents::default();
        for block in [0, 2, 1, 3] {
            let extent = Extent { blocks: 1, index: block as u32 + 7, sequence: 1 };
            extents.insert(block, extent, |_| panic!("nothing was there"));
        }
        let whole = Extent { blocks: 4, index: 7, sequence: 1 };
        assert_eq!(extents.iter().collect::<Vec<_>>(), [(0, whole)]);
    }
}
