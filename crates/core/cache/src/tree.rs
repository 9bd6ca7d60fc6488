//! The tagged radix tree of a mapping: which folio holds a page, and which pages are dirty.
//!
//! ```text
//!   root ──► inner ──► leaf: 64 slots   [7][7][7][7][ ][9]…
//!            64 slots        used        1  1  1  1  0  1
//!                            dirty       1  1  1  1  0  0
//!                            writeback   0  0  0  0  0  1
//!                            towrite     0  0  0  0  0  0
//! ```
//!
//! The look-up `find` takes no lock and allocates nothing. It finds every folio that stays in the
//! tree. While a folio comes or goes, `find` may return no folio, or a wrong folio. So its caller
//! pins the folio, compares the identity, and looks again under the lock before it treats a page as
//! missing. The other methods need the mapping's lock; a `TreeLock` proves that the caller holds
//! it.

use crate::nodes::{BITS, LEVELS_MAX, Node, Nodes, SLOTS};
use crate::primitives::{Acquire, AtomicU64, Relaxed, Release};

/// A tag of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The page has a folio.
    Used = 0,
    /// A page of the folio is newer than the file, and no writeback of the folio is in progress.
    Dirty = 1,
    /// The folio is under writeback.
    Writeback = 2,
    /// A sync found the page dirty when it began, and no writeback of the folio has begun since.
    Towrite = 3,
}

const TAGS: [Tag; 4] = [Tag::Used, Tag::Dirty, Tag::Writeback, Tag::Towrite];
const MASK: u64 = SLOTS as u64 - 1;

/// Proof that the caller holds the mapping's lock, whose mutex contains this value.
#[derive(Debug)]
pub(crate) struct TreeLock(());

impl TreeLock {
    pub(crate) fn new() -> TreeLock {
        TreeLock(())
    }
}

/// A tree from page index to folio number. Its nodes lie in `nodes`: all calls on one tree get the
/// same `nodes`.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The number of the root in the low half, the number of levels in the high half, so that one
    /// load reads both.
    root: AtomicU64,
}

struct Path<'a> {
    nodes: [Option<&'a Node>; LEVELS_MAX],
    numbers: [u32; LEVELS_MAX],
    levels: usize,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree { root: AtomicU64::new(0) }
    }

    /// Returns the number of the folio of page `index`, or 0. The number may be wrong if the tree
    /// changes meanwhile.
    #[inline]
    pub(crate) fn find(&self, nodes: &Nodes, index: u64) -> u32 {
        let root = self.root.load(Acquire);
        let (mut number, mut level) = (root as u32, (root >> 32) as u32);
        if !is_inside(index, level) {
            return 0;
        }
        while level > 0 {
            level -= 1;
            let Some(node) = nodes.get(number) else { return 0 };
            number = node.slots[slot_of(index, level)].load(Acquire);
        }
        number
    }

    /// Inserts a folio of 2^`order` pages, whose first page is `index`. None of these pages has a
    /// folio.
    pub(crate) fn insert(
        &self,
        nodes: &Nodes,
        lock: &mut TreeLock,
        index: u64,
        order: u32,
        folio: u32,
    ) {
        let path = self.path_to(nodes, lock, index);
        let leaf = path.leaf();
        let first = slot_of(index, 0);
        for slot in &leaf.slots[first..first + (1 << order)] {
            debug_assert_eq!(slot.load(Relaxed), 0, "two folios for one page");
            slot.store(folio, Release);
        }
        path.tag(index, order, Tag::Used, true);
    }

    pub(crate) fn remove(&self, nodes: &Nodes, lock: &mut TreeLock, index: u64, order: u32) {
        let path = self.path(nodes, lock, index).expect("a folio to remove");
        let first = slot_of(index, 0);
        for slot in &path.leaf().slots[first..first + (1 << order)] {
            slot.store(0, Release);
        }
        for tag in TAGS {
            path.tag(index, order, tag, false);
        }
        // Recycles empty nodes, from the leaf up. A look-up that is still in such a node finds
        // nothing there, or whatever the next user of the node stores.
        for level in (0..path.levels).rev() {
            let node = path.nodes[level].expect("a level of the path");
            if node.tags[Tag::Used as usize].load(Relaxed) != 0 {
                return;
            }
            match level.checked_sub(1) {
                None => self.root.store(0, Release),
                Some(parent) => {
                    let parent = path.nodes[parent].expect("a level of the path");
                    let slot = slot_of(index, (path.levels - level) as u32);
                    parent.slots[slot].store(0, Release);
                }
            }
            nodes.recycle(path.numbers[level]);
        }
    }

    pub(crate) fn tag(
        &self,
        nodes: &Nodes,
        lock: &mut TreeLock,
        (index, order): (u64, u32),
        tag: Tag,
        on: bool,
    ) {
        self.path(nodes, lock, index).expect("a folio to tag").tag(index, order, tag, on);
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_tagged(&self, nodes: &Nodes, lock: &TreeLock, index: u64, tag: Tag) -> bool {
        let Some(path) = self.path(nodes, lock, index) else { return false };
        path.leaf().tags[tag as usize].load(Relaxed) >> slot_of(index, 0) & 1 != 0
    }

    /// Returns the first page in `from..=last` that has the tag, and the number of its folio. Reads
    /// at most two nodes of each level.
    pub(crate) fn next(
        &self,
        nodes: &Nodes,
        _: &TreeLock,
        from: u64,
        last: u64,
        tag: Tag,
    ) -> Option<(u64, u32)> {
        let root = self.root.load(Relaxed);
        let (number, levels) = (root as u32, (root >> 32) as u32);
        if levels == 0 || from > last || !is_inside(from, levels) {
            return None;
        }
        let found = next_below(nodes, number, levels - 1, from, tag)?;
        (found.0 <= last).then_some(found)
    }

    /// Sets [`Tag::Towrite`] on the pages in `from..=last` that have [`Tag::Dirty`], also on a part
    /// of a folio.
    pub(crate) fn mark_dirty_to_write(
        &self,
        nodes: &Nodes,
        _: &mut TreeLock,
        from: u64,
        last: u64,
    ) {
        let root = self.root.load(Relaxed);
        let (number, levels) = (root as u32, (root >> 32) as u32);
        if levels > 0 && from <= last && is_inside(from, levels) {
            mark_below(nodes, number, levels - 1, from, last.min(last_inside(levels)));
        }
    }

    fn path<'a>(&self, nodes: &'a Nodes, _: &TreeLock, index: u64) -> Option<Path<'a>> {
        let root = self.root.load(Relaxed);
        let (mut number, levels) = (root as u32, (root >> 32) as usize);
        if !is_inside(index, levels as u32) {
            return None;
        }
        let mut path = Path { nodes: [None; LEVELS_MAX], numbers: [0; LEVELS_MAX], levels };
        for at in 0..levels {
            let node = nodes.get(number)?;
            (path.nodes[at], path.numbers[at]) = (Some(node), number);
            number = node.slots[slot_of(index, (levels - 1 - at) as u32)].load(Relaxed);
        }
        (levels > 0).then_some(path)
    }

    fn path_to<'a>(&self, nodes: &'a Nodes, lock: &TreeLock, index: u64) -> Path<'a> {
        self.grow(nodes, index);
        let root = self.root.load(Relaxed);
        let (mut number, levels) = (root as u32, (root >> 32) as u32);
        for level in (1..levels).rev() {
            let node = nodes.get(number).expect("a node of the tree");
            let slot = slot_of(index, level);
            number = node.slots[slot].load(Relaxed);
            if number == 0 {
                number = nodes.allocate();
                node.slots[slot].store(number, Release);
                let used = &node.tags[Tag::Used as usize];
                used.store(used.load(Relaxed) | 1 << slot, Relaxed);
            }
        }
        self.path(nodes, lock, index).expect("the path just made")
    }

    fn grow(&self, nodes: &Nodes, index: u64) {
        let root = self.root.load(Relaxed);
        let (mut number, mut levels) = (root as u32, root >> 32);
        if levels == 0 {
            (number, levels) = (nodes.allocate(), 1);
            while !is_inside(index, levels as u32) {
                // The tree is empty: one root, of the level that `index` needs, is enough.
                levels += 1;
            }
        }
        while !is_inside(index, levels as u32) {
            let above = nodes.allocate();
            let (node, below) = (nodes.get(above), nodes.get(number));
            let (node, below) = node.zip(below).expect("nodes of the tree");
            node.slots[0].store(number, Release);
            for tag in TAGS {
                let any = below.tags[tag as usize].load(Relaxed) != 0;
                node.tags[tag as usize].store(u64::from(any), Relaxed);
            }
            (number, levels) = (above, levels + 1);
        }
        self.root.store(levels << 32 | u64::from(number), Release);
    }
}

impl<'a> Path<'a> {
    fn leaf(&self) -> &'a Node {
        self.nodes[self.levels - 1].expect("a path ends in a leaf")
    }

    fn tag(&self, index: u64, order: u32, tag: Tag, on: bool) {
        for (level, node) in self.nodes[..self.levels].iter().rev().enumerate() {
            let slots = if level == 0 { u64::MAX >> (64 - (1 << order)) } else { 1 };
            let bits = slots << slot_of(index, level as u32);
            let word = &node.expect("a level of the path").tags[tag as usize];
            let old = word.load(Relaxed);
            let new = if on { old | bits } else { old & !bits };
            word.store(new, Relaxed);
            if new == old || (!on && new != 0) {
                return;
            }
        }
    }
}

fn next_below(nodes: &Nodes, number: u32, level: u32, from: u64, tag: Tag) -> Option<(u64, u32)> {
    let node = nodes.get(number).expect("a node of the tree");
    let first = slot_of(from, level);
    let mut bits = node.tags[tag as usize].load(Relaxed) & (u64::MAX << first);
    while bits != 0 {
        let slot = bits.trailing_zeros() as usize;
        let start = if slot == first { from } else { start_of(from, level, slot) };
        let below = node.slots[slot].load(Relaxed);
        if level == 0 {
            return Some((start, below));
        }
        if let Some(found) = next_below(nodes, below, level - 1, start, tag) {
            return Some(found);
        }
        // In the slot of `from`, all tagged pages may lie before `from`.
        bits &= bits - 1;
    }
    None
}

fn mark_below(nodes: &Nodes, number: u32, level: u32, from: u64, last: u64) -> bool {
    let node = nodes.get(number).expect("a node of the tree");
    let (first, end) = (slot_of(from, level), slot_of(last, level));
    let inside = (u64::MAX << first) & (u64::MAX >> (63 - end));
    let mut bits = node.tags[Tag::Dirty as usize].load(Relaxed) & inside;
    let mut marked = if level == 0 { bits } else { 0 };
    while level > 0 && bits != 0 {
        let slot = bits.trailing_zeros() as usize;
        let low = if slot == first { from } else { start_of(from, level, slot) };
        let high = if slot == end { last } else { low | span(level) };
        let below = node.slots[slot].load(Relaxed);
        marked |= u64::from(mark_below(nodes, below, level - 1, low, high)) << slot;
        bits &= bits - 1;
    }
    let word = &node.tags[Tag::Towrite as usize];
    word.store(word.load(Relaxed) | marked, Relaxed);
    marked != 0
}

/// `level` is 0 for leaves.
#[inline]
fn slot_of(index: u64, level: u32) -> usize {
    (index >> (BITS * level) & MASK) as usize
}

/// The mask of the bits of an index that select a page below one slot of `level`.
fn span(level: u32) -> u64 {
    (1u64 << (BITS * level)) - 1
}

/// Returns the first index below a slot, in the node of `level` that covers `index`.
fn start_of(index: u64, level: u32, slot: usize) -> u64 {
    (index >> (BITS * level) & !MASK | slot as u64) << (BITS * level)
}

#[inline]
fn is_inside(index: u64, levels: u32) -> bool {
    levels > 0 && index.checked_shr(BITS * levels).unwrap_or(0) == 0
}

fn last_inside(levels: u32) -> u64 {
    1u64.checked_shl(BITS * levels).map_or(u64::MAX, |end| end - 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn index() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..200u64,
            (0..64u32, 0..3u64).prop_map(|(bit, more)| (1 << bit) + more),
            (0..70u64).prop_map(|below| u64::MAX - below),
        ]
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u32),
        Remove(u64),
        Tag(u64, Tag, bool),
        MarkDirty(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let tag = prop_oneof![Just(Tag::Dirty), Just(Tag::Writeback), Just(Tag::Towrite)];
        prop_oneof![
            4 => (index(), 0..=6u32).prop_map(|(index, order)| Step::Insert(index, order)),
            1 => index().prop_map(Step::Remove),
            4 => (index(), tag, any::<bool>()).prop_map(|(i, tag, on)| Step::Tag(i, tag, on)),
            1 => (index(), index()).prop_map(|(from, last)| Step::MarkDirty(from, last)),
        ]
    }

    /// The order, number and tags of each folio, by first page.
    type Model = BTreeMap<u64, (u32, u32, [bool; 4])>;

    struct Pair {
        nodes: Nodes,
        tree: Tree,
        lock: TreeLock,
        /// The number of the folio and the tags of each page, by index.
        model: BTreeMap<u64, (u32, [bool; 4])>,
        folios: Model,
    }

    impl Pair {
        fn new() -> Pair {
            Pair {
                nodes: Nodes::new(2_000),
                tree: Tree::new(),
                lock: TreeLock::new(),
                model: BTreeMap::new(),
                folios: Model::new(),
            }
        }

        fn covering(&self, index: u64) -> Option<(u64, u32)> {
            let (first, (order, ..)) = self.folios.range(..=index).next_back()?;
            (index - first < 1 << order).then_some((*first, *order))
        }

        fn pages(first: u64, order: u32) -> impl Iterator<Item = u64> {
            (0..1 << order).map(move |page| first + page)
        }

        fn apply(&mut self, step: &Step, number: u32) {
            match *step {
                Step::Insert(index, order) => {
                    let first = index >> order << order;
                    if Pair::pages(first, order).any(|page| self.model.contains_key(&page)) {
                        return;
                    }
                    self.tree.insert(&self.nodes, &mut self.lock, first, order, number);
                    self.folios.insert(first, (order, number, [false; 4]));
                    for page in Pair::pages(first, order) {
                        self.model.insert(page, (number, [true, false, false, false]));
                    }
                }
                Step::Remove(index) => {
                    let Some((first, order)) = self.covering(index) else { return };
                    self.tree.remove(&self.nodes, &mut self.lock, first, order);
                    self.folios.remove(&first);
                    for page in Pair::pages(first, order) {
                        self.model.remove(&page);
                    }
                }
                Step::Tag(index, tag, on) => {
                    let Some((first, order)) = self.covering(index) else { return };
                    self.tree.tag(&self.nodes, &mut self.lock, (first, order), tag, on);
                    for page in Pair::pages(first, order) {
                        self.model.get_mut(&page).unwrap().1[tag as usize] = on;
                    }
                }
                Step::MarkDirty(from, last) => {
                    self.tree.mark_dirty_to_write(&self.nodes, &mut self.lock, from, last);
                    if from <= last {
                        for (_, (_, tags)) in self.model.range_mut(from..=last) {
                            tags[Tag::Towrite as usize] |= tags[Tag::Dirty as usize];
                        }
                    }
                }
            }
        }
    }

    const STEPS_MAX: usize = if cfg!(miri) { 16 } else { 80 };

    proptest! {
        #[test]
        fn tree_and_tags_agree_with_a_map(
            steps in vec(step(), 0..STEPS_MAX),
            probes in vec((index(), index()), 1..STEPS_MAX / 2),
        ) {
            let mut pair = Pair::new();
            for (step, number) in steps.iter().zip(1..) {
                pair.apply(step, number);
            }
            for (from, last) in probes {
                let expected = pair.model.get(&from).map_or(0, |page| page.0);
                prop_assert_eq!(pair.tree.find(&pair.nodes, from), expected);
                for tag in TAGS {
                    let tagged = |tags: &[bool; 4]| tags[tag as usize];
                    let is = pair.model.get(&from).is_some_and(|page| tagged(&page.1));
                    let Pair { tree, nodes, lock, .. } = &pair;
                    prop_assert_eq!(tree.is_tagged(nodes, lock, from, tag), is);
                    let mut range = pair.model.range(from..);
                    let next = range.find(|(_, page)| tagged(&page.1)).map(|(i, p)| (*i, p.0));
                    let next = next.filter(|(index, _)| *index <= last);
                    prop_assert_eq!(tree.next(nodes, lock, from, last, tag), next);
                }
            }
            let all: Vec<u64> = pair.folios.keys().copied().collect();
            for index in all {
                pair.apply(&Step::Remove(index), 0);
            }
            prop_assert_eq!(pair.nodes.in_use(), 0, "an empty tree has no nodes");
        }
    }

    #[test]
    fn a_tree_that_grows_keeps_its_pages_and_tags() {
        let mut pair = Pair::new();
        pair.apply(&Step::Insert(5, 0), 1);
        pair.apply(&Step::Tag(5, Tag::Dirty, true), 0);
        pair.apply(&Step::Insert(u64::MAX, 0), 2);
        let Pair { tree, nodes, lock, .. } = &pair;
        assert_eq!((tree.find(nodes, 5), tree.find(nodes, u64::MAX)), (1, 2));
        assert_eq!(tree.next(nodes, lock, 0, u64::MAX, Tag::Dirty), Some((5, 1)));
        assert_eq!(tree.next(nodes, lock, 6, u64::MAX, Tag::Used), Some((u64::MAX, 2)));
    }
}
