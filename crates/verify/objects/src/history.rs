//! The possible contents of an image, which is like a disk with a volatile cache whose changes
//! become durable in order.

use std::ops::Range;

/// The content of a block, as the number of the write that wrote it; 0 for zeroes.
pub type Version = u64;

#[derive(Clone, Debug)]
struct Change {
    blocks: Range<usize>,
    version: Version,
}

/// The content that one writer has found, and the changes by this writer.
#[derive(Clone, Debug)]
pub struct History {
    base: Vec<Version>,
    changes: Vec<Change>,
    /// Number of changes up to the newest one that has ended.
    pub ended: usize,
    /// Number of changes up to the newest one that is known to be durable.
    pub flushed: usize,
}

impl History {
    /// Begins with the content that the writer found.
    pub fn new(base: Vec<Version>) -> History {
        History { base, changes: Vec::new(), ended: 0, flushed: 0 }
    }

    /// Adds a write as one change for each block, as the blocks may become durable one by one.
    pub fn write(&mut self, blocks: Range<usize>, version: Version) -> usize {
        self.changes.extend(blocks.map(|block| Change { blocks: block..block + 1, version }));
        self.changes.len()
    }

    /// Adds a discard; returns the new number of changes.
    pub fn discard(&mut self, blocks: Range<usize>) -> usize {
        self.changes.push(Change { blocks, version: 0 });
        self.changes.len()
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns `true` if there was no change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the largest number of changes, at least `from`, after which the content is `image`.
    pub fn find(&self, image: &[Version], from: usize) -> Option<usize> {
        let mut state = self.base.clone();
        let mut found = (from == 0 && state == image).then_some(0);
        for (index, change) in self.changes.iter().enumerate() {
            state[change.blocks.clone()].fill(change.version);
            if index + 1 >= from && state == image {
                found = Some(index + 1);
            }
        }
        found
    }

    /// Returns `true` if a change from index `from` to below `to` changed the content of a block.
    pub fn differs(&self, from: usize, to: usize) -> bool {
        let mut state = self.base.clone();
        let mut differs = false;
        for (index, change) in self.changes.iter().enumerate().take(to) {
            let blocks = &mut state[change.blocks.clone()];
            differs |= index >= from && blocks.iter().any(|it| *it != change.version);
            blocks.fill(change.version);
        }
        differs
    }

    /// Returns `true` if a read may find this version, where `from` was `ended` at the read's
    /// beginning.
    pub fn may_read(&self, block: usize, version: Version, from: usize) -> bool {
        let mut state = self.base[block];
        let mut may = from == 0 && state == version;
        for (index, change) in self.changes.iter().enumerate() {
            if change.blocks.contains(&block) {
                state = change.version;
            }
            may |= index + 1 >= from && state == version;
        }
        may
    }
}
