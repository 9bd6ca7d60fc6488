//! The possible sizes of an image. Edits make the image larger, and writers make it smaller.

#[derive(Clone, Copy, Debug)]
struct Change {
    size_bytes: u64,
    begin: u64,
    /// The end of the request; `None`: the request may still take effect.
    end: Option<u64>,
    is_made: bool,
}

/// All requested sizes.
#[derive(Debug, Default)]
pub struct Sizes {
    changes: Vec<Change>,
    clock: u64,
}

impl Sizes {
    /// Begins with the size of a new image.
    pub fn of(size_bytes: u64) -> Sizes {
        let first = Change { size_bytes, begin: 0, end: Some(1), is_made: true };
        Sizes { changes: vec![first], clock: 1 }
    }

    /// Returns the time, for [`Sizes::may_be`].
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// Returns `true` if a requested change of the size has certainly taken effect.
    pub fn were_changed(&self) -> bool {
        self.changes.iter().skip(1).any(|it| it.is_made)
    }

    /// Records a requested size; returns its number.
    pub fn begin(&mut self, size_bytes: u64) -> usize {
        self.clock += 1;
        self.changes.push(Change { size_bytes, begin: self.clock, end: None, is_made: false });
        self.changes.len() - 1
    }

    /// Records the end of a request. If `is_made`, the image certainly had the requested size.
    pub fn end(&mut self, number: usize, is_made: bool) {
        self.clock += 1;
        let change = &mut self.changes[number];
        (change.end, change.is_made) = (Some(self.clock), is_made);
    }

    /// Returns `true` if the image may have had a size at some time since `since`. A later request
    /// that certainly took effect by `since` excludes the size.
    pub fn may_be(&self, size_bytes: u64, since: u64) -> bool {
        let is_replaced = |it: &Change| {
            let behind = |other: &&Change| it.end.is_some_and(|end| end <= other.begin);
            let mut later = self.changes.iter().filter(|it| it.is_made).filter(behind);
            later.any(|it| it.end.is_some_and(|end| end <= since))
        };
        self.changes.iter().any(|it| it.size_bytes == size_bytes && !is_replaced(it))
    }
}
