//! The part of a file that a request reads, changes or makes durable.

use crate::{Command, Kind};
use core::ops::Range;
use nowait_sys::{
    file::Stat,
    mistake::{self, Mistake},
};

/// The identity of an inode: device and inode number.
pub type InodeKey = (u64, u64);

/// The inode behind a descriptor, and its size when a request was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// The inode.
    pub key: InodeKey,
    /// The number of bytes in the file; `u64::MAX` if it is no regular file: no write moves the end
    /// of a block device.
    pub end: u64,
}

impl FileState {
    /// Returns the state that `stat` shows.
    pub fn of(stat: &Stat) -> FileState {
        let end = if stat.is_regular() { stat.size as u64 } else { u64::MAX };
        FileState { key: (stat.dev, stat.ino), end }
    }
}

/// The access of a request to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Reads the bytes.
    Read,
    /// Changes the bytes.
    Write,
    /// Makes earlier changes durable. A sync waits for earlier writes; no request waits for a sync.
    Sync,
}

impl Access {
    pub(crate) fn of(kind: Kind) -> Access {
        match kind {
            Kind::Read => Access::Read,
            Kind::Write => Access::Write,
            _ => Access::Sync,
        }
    }
}

/// The bytes that a request reads, changes or makes durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The bytes.
    pub range: Range<u64>,
    /// The access of the request to the bytes.
    pub access: Access,
    /// The first byte of the hole that a write leaves between the old end of the file and its own
    /// first byte; `range.start` if there is no hole. A read in the hole finds zeroes after the
    /// write, and the end of the file before it.
    hole_start: u64,
}

impl Reach {
    /// Returns the reach of a request that leaves no hole before its bytes.
    pub fn new(range: Range<u64>, access: Access) -> Reach {
        Reach { hole_start: range.start, range, access }
    }

    /// Returns the reach of a request on a file that has `end` bytes when the request is submitted.
    ///
    /// Writes in flight may lengthen the file before this write. That makes the hole too large, but
    /// never too small.
    pub fn at_end(range: Range<u64>, access: Access, end: u64) -> Reach {
        let mut reach = Reach::new(range, access);
        let lengthens = access == Access::Write && !reach.range.is_empty();
        if lengthens && !mistake::makes(Mistake::ForgetLength) {
            reach.hole_start = end.min(reach.range.start);
        }
        reach
    }

    pub(crate) fn of(command: &Command, end: u64) -> Reach {
        let start = command.offset as u64;
        match Access::of(command.kind) {
            Access::Write if command.is_append() => Reach::new(0..u64::MAX, Access::Write),
            Access::Sync => Reach::new(command.sync_range(), Access::Sync),
            access => Reach::at_end(start..start.saturating_add(command.len), access, end),
        }
    }

    pub(super) fn leaves_hole(&self) -> bool {
        self.hole_start < self.range.start
    }

    pub(super) fn with_hole(&self) -> Range<u64> {
        self.hole_start..self.range.end
    }

    pub(super) fn overlaps(&self, other: &Reach) -> bool {
        overlap(&self.range, &other.range)
    }

    /// Returns `true` if a request with this reach must take effect before a `later` one.
    pub(crate) fn precedes(&self, later: &Reach) -> bool {
        // Most pairs end here, whatever they do: a batch compares each write with all before it.
        if !overlap(&self.with_hole(), &later.with_hole()) {
            return false;
        }
        match (self.access, later.access) {
            (Access::Write, Access::Write) => self.overlaps(later),
            (Access::Write, Access::Sync) => {
                self.overlaps(later) && !mistake::makes(Mistake::SyncPasses)
            }
            (Access::Write, Access::Read) => overlap(&self.with_hole(), &later.range),
            (Access::Read, Access::Write) => overlap(&self.range, &later.with_hole()),
            (Access::Read | Access::Sync, _) => false,
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Read, Sync, Write};
    use proptest::prelude::*;

    /// Each row: an earlier and a later request, each with the size of the file at its submission,
    /// and whether the earlier one must take effect first.
    #[test]
    fn a_request_precedes_those_that_depend_on_its_bytes_or_on_the_end() {
        type Request = (Range<u64>, Access, u64);
        let table: &[(Request, Request, bool)] = &[
            ((0..8, Write, 99), (4..12, Write, 99), true),
            ((0..8, Write, 99), (8..12, Write, 99), false),
            ((0..8, Write, 99), (7..8, Read, 99), true),
            ((0..8, Read, 99), (7..8, Write, 99), true),
            ((0..8, Read, 99), (0..8, Read, 99), false),
            ((0..8, Write, 99), (0..99, Sync, 99), true),
            ((0..8, Sync, 99), (0..8, Write, 99), false),
            // The first request writes behind the end: reads of the hole wait for it.
            ((50..60, Write, 20), (30..40, Read, 20), true),
            ((50..60, Write, 20), (10..20, Read, 20), false),
            ((50..60, Write, 20), (10..21, Read, 20), true),
            ((50..60, Write, 20), (60..70, Read, 20), false),
            // A read of the hole comes first: it must find the end of the file there.
            ((30..40, Read, 20), (50..60, Write, 20), true),
            ((10..20, Read, 20), (50..60, Write, 20), false),
            // Only overlapping bytes order two writes that lengthen the file.
            ((50..60, Write, 20), (30..40, Write, 20), false),
            ((50..60, Write, 20), (30..40, Sync, 20), false),
            ((50..50, Write, 20), (30..40, Read, 20), false),
        ];
        let reach = |(range, access, end): &Request| Reach::at_end(range.clone(), *access, *end);
        for (earlier, later, expected) in table {
            let precedes = reach(earlier).precedes(&reach(later));
            assert_eq!(precedes, *expected, "{earlier:?} before {later:?}");
        }
    }

    fn carry_out(file: &mut Vec<u8>, (range, access): &(Range<u64>, Access), byte: u8) -> Vec<u8> {
        let (start, end) = (range.start as usize, range.end as usize);
        match access {
            Write if start < end => {
                file.resize(file.len().max(end), 0);
                file[start..end].fill(byte);
                Vec::new()
            }
            Read => file.get(start..end.min(file.len())).unwrap_or_default().to_vec(),
            _ => Vec::new(),
        }
    }

    fn request() -> impl Strategy<Value = (Range<u64>, Access)> {
        let access = prop_oneof![Just(Read), Just(Write)];
        (0u64..20, 0u64..8, access).prop_map(|(start, len, access)| (start..start + len, access))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// The size at a request's submission may be older than the size when it is carried out.
        #[test]
        fn requests_that_may_change_places_do_the_same_in_both_orders(
            earlier in request(),
            later in request(),
            size in 0usize..24,
            lengthened in 0usize..6,
        ) {
            let reach = |(range, access): &(Range<u64>, Access)| {
                Reach::at_end(range.clone(), *access, size as u64)
            };
            if !reach(&earlier).precedes(&reach(&later)) {
                let mut in_order = vec![9; size + lengthened];
                let mut turned = in_order.clone();
                let first = carry_out(&mut in_order, &earlier, 1);
                let second = carry_out(&mut in_order, &later, 2);
                prop_assert_eq!(carry_out(&mut turned, &later, 2), second);
                prop_assert_eq!(carry_out(&mut turned, &earlier, 1), first);
                prop_assert_eq!(in_order, turned);
            }
        }
    }
}
