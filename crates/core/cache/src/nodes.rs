//! The memory of the nodes of all trees of a cache. A node can be recycled; the cache frees its
//! nodes only when it is dropped.
//!
//! A look-up holds no lock, so it may read a node that serves another tree by now. At its end the
//! look-up compares the identity of the folio that it has found ([`crate::folio`]), and so notices
//! that it was misled.

use crate::primitives::{Acquire, AtomicU32, AtomicU64, Mutex, Relaxed, Release};
use core::sync::atomic::AtomicPtr;

/// Bits of a page index for each level of a tree; fewer in models.
pub(crate) const BITS: u32 = if cfg!(loom) { 1 } else { 6 };
pub(crate) const SLOTS: usize = 1 << BITS;
pub(crate) const LEVELS_MAX: usize = 64usize.div_ceil(BITS as usize);

const CHUNK_BITS: u32 = match (cfg!(loom), cfg!(miri)) {
    (true, _) => 1,
    (_, true) => 4,
    _ => 9,
};
const CHUNK: usize = 1 << CHUNK_BITS;

/// A node: slots, and for each tag a bit per slot.
///
/// The slots of a leaf hold numbers of folios, other slots numbers of nodes. All slots of a large
/// folio hold its number, so that a look-up is one walk. In a leaf a tag bit says that the page has
/// the tag; in other nodes, that a page below the slot has it. Look-ups without a lock read only
/// slots; the mapping's lock guards the tags.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Node {
    pub(crate) slots: [AtomicU32; SLOTS],
    pub(crate) tags: [AtomicU64; 4],
}

impl Node {
    fn new() -> Node {
        Node {
            slots: core::array::from_fn(|_| AtomicU32::new(0)),
            tags: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Nodes {
    /// Chunks of nodes, each made when it is needed. The pointers are atomics of std, not of loom:
    /// they only publish memory.
    chunks: Box<[AtomicPtr<Node>]>,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    made: u32,
    recycled: Vec<u32>,
}

impl Nodes {
    /// Makes a table with room for the trees over `frames` frames: a folio needs at most one node
    /// of each level.
    pub(crate) fn new(frames: u32) -> Nodes {
        let chunks = (frames as usize * LEVELS_MAX).div_ceil(CHUNK) + 1;
        let chunks = (0..chunks).map(|_| AtomicPtr::default()).collect();
        Nodes { chunks, book: Mutex::new(Book { made: 0, recycled: Vec::new() }) }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Node> {
        // Numbers count from one. Zero becomes the highest index, for which there is no chunk.
        let at = number.wrapping_sub(1) as usize;
        let chunk = self.chunks.get(at >> CHUNK_BITS)?.load(Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a chunk has CHUNK nodes and lives as long as self.
        Some(unsafe { &*chunk.add(at & (CHUNK - 1)) })
    }

    pub(crate) fn allocate(&self) -> u32 {
        let mut book = self.book.lock();
        if let Some(number) = book.recycled.pop() {
            return number;
        }
        let at = book.made as usize;
        if at.is_multiple_of(CHUNK) {
            let chunk: Box<[Node]> = (0..CHUNK).map(|_| Node::new()).collect();
            let first = Box::into_raw(chunk).cast::<Node>();
            self.chunks[at >> CHUNK_BITS].store(first, Release);
        }
        book.made += 1;
        book.made
    }

    /// Takes back an empty node. No slot may link it.
    pub(crate) fn recycle(&self, number: u32) {
        debug_assert!(self.get(number).is_some_and(|node| {
            node.tags.iter().all(|tag| tag.load(Relaxed) == 0)
                && node.slots.iter().all(|slot| slot.load(Relaxed) == 0)
        }));
        self.book.lock().recycled.push(number);
    }

    pub(crate) fn in_use(&self) -> usize {
        let book = self.book.lock();
        book.made as usize - book.recycled.len()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for chunk in &mut self.chunks {
            let first = *chunk.get_mut();
            if !first.is_null() {
                // SAFETY: made by `allocate` as a box of CHUNK nodes; no look-up runs, because
                // `self` is dropped.
                drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(first, CHUNK)) });
            }
        }
    }
}
