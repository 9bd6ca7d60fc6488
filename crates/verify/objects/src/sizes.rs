//! Which sizes an image may have: it is made with one, edits make it larger, its writers smaller.

/// A size that was wanted.
#[derive(Clone, Copy, Debug)]
struct Change {
    size_bytes: u64,
    begin: u64,
    /// When it was over; one that was not may still come.
    end: Option<u64>,
    /// It was made for certain.
    is_made: bool,
}

/// All sizes that were wanted.
#[derive(Debug, Default)]
pub struct Sizes {
    changes: Vec<Change>,
    /// Counts what has happened.
    clock: u64,
}

impl Sizes {
    /// Begins with an image.
    pub fn of(size_bytes: u64) -> Sizes {
        let first = Change { size_bytes, begin: 0, end: Some(1), is_made: true };
        Sizes { changes: vec![first], clock: 1 }
    }

    /// The time, for [`Sizes::may_be`].
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// Tells whether the image has changed its size for certain.
    pub fn were_changed(&self) -> bool {
        self.changes.iter().skip(1).any(|it| it.is_made)
    }

    /// Notes that a size is wanted; returns by which number that is known.
    pub fn begin(&mut self, size_bytes: u64) -> usize {
        self.clock += 1;
        self.changes.push(Change { size_bytes, begin: self.clock, end: None, is_made: false });
        self.changes.len() - 1
    }

    /// Notes that this is over: the image had that size at some time since then, or perhaps not.
    pub fn end(&mut self, number: usize, is_made: bool) {
        self.clock += 1;
        let change = &mut self.changes[number];
        (change.end, change.is_made) = (Some(self.clock), is_made);
    }

    /// Tells whether the image may have had a size at some time since `since`: it was wanted, and
    /// no other has come for certain between that and then.
    pub fn may_be(&self, size_bytes: u64, since: u64) -> bool {
        let is_replaced = |it: &Change| {
            let behind = |other: &&Change| it.end.is_some_and(|end| end <= other.begin);
            let mut later = self.changes.iter().filter(|it| it.is_made).filter(behind);
            later.any(|it| it.end.is_some_and(|end| end <= since))
        };
        self.changes.iter().any(|it| it.size_bytes == size_bytes && !is_replaced(it))
    }
}
