//! The inodes that may have a user file, looked up without a lock.
//!
//! Writes that would bypass the cache look for a mark. A mark may be another inode's, because
//! several inodes share a counter.

use crate::order::InodeKey;
use core::hash::{BuildHasher, BuildHasherDefault};
use nowait_retry::counter::Counter;
use rustc_hash::FxHasher;
use std::sync::Arc;

/// Counters; they take 16 KiB. With a hundred user files, about one in forty look-ups of another
/// inode takes the lock.
const PLACES: usize = 4096;

#[derive(Debug)]
pub(crate) struct InodeMarks {
    all: Counter,
    places: Box<[Counter]>,
}

impl Default for InodeMarks {
    fn default() -> InodeMarks {
        let places = (0..PLACES).map(|_| Counter::default()).collect();
        InodeMarks { all: Counter::default(), places }
    }
}

impl InodeMarks {
    pub(crate) fn mark(self: &Arc<Self>, key: InodeKey) -> Mark {
        let place = place(key);
        // Must come before the open looks for writes in flight, see `kernel_writes.rs`.
        self.places[place].enter();
        self.all.enter();
        Mark { marks: self.clone(), place }
    }

    /// A `true` may be wrong.
    pub(crate) fn may_have(&self, key: InodeKey) -> bool {
        !self.places[place(key)].is_zero()
    }

    pub(crate) fn have_any(&self) -> bool {
        !self.all.is_zero()
    }
}

#[derive(Debug)]
pub(crate) struct Mark {
    marks: Arc<InodeMarks>,
    place: usize,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // No thread waits for these counters to become zero.
        let _ = (self.marks.all.leave(), self.marks.places[self.place].leave());
    }
}

fn place(key: InodeKey) -> usize {
    let hash = BuildHasherDefault::<FxHasher>::default().hash_one(key);
    (hash >> (u64::BITS - PLACES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_marked_as_long_as_one_mark_is_left() {
        let marks = Arc::new(InodeMarks::default());
        assert!(!marks.may_have((1, 2)));
        let (first, second) = (marks.mark((1, 2)), marks.mark((1, 2)));
        drop(first);
        assert!(marks.may_have((1, 2)));
        drop(second);
        assert!(!marks.may_have((1, 2)));
    }

    #[test]
    fn few_inodes_share_a_place() {
        let marks = Arc::new(InodeMarks::default());
        let _marked: Vec<_> = (0..64).map(|inode| marks.mark((64_769, inode))).collect();
        let shared = (64..4096).filter(|inode| marks.may_have((64_769, *inode))).count();
        assert!(shared < 400, "{shared} of 4032");
    }
}
