//! A set of a folio's pages.

use crate::FRAME_BYTES;
use crate::buddy::ORDER_MAX;

const _: () = assert!(1u64 << ORDER_MAX <= u64::BITS as u64, "a bit for each page of a folio");

/// A set of pages of one folio. Page 0 is the folio's first page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages(pub(crate) u64);

impl Pages {
    /// The empty set.
    pub const NONE: Pages = Pages(0);
    /// All pages of any folio.
    pub const ALL: Pages = Pages(u64::MAX);

    pub(crate) fn range(from: u32, count: u32) -> Pages {
        let low = u64::MAX.checked_shr(u64::BITS - count).unwrap_or(0);
        Pages(low.checked_shl(from).unwrap_or(0))
    }

    /// Returns the pages that contain bytes from byte `from` to before byte `end` of the folio.
    #[inline]
    pub(crate) fn of_bytes(from: usize, end: usize) -> Pages {
        let (first, behind) = (from / FRAME_BYTES, end.div_ceil(FRAME_BYTES));
        Pages::range(first as u32, behind.saturating_sub(first) as u32)
    }

    /// Returns `true` if the set is empty.
    pub fn is_empty(self) -> bool {
        self == Pages::NONE
    }

    /// Returns `true` if the set has this page.
    pub fn has(self, page: u32) -> bool {
        self.0 & 1 << page != 0
    }

    /// Returns the number of pages in the set.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn and(self, other: Pages) -> Pages {
        Pages(self.0 & other.0)
    }

    pub(crate) fn without(self, other: Pages) -> Pages {
        Pages(self.0 & !other.0)
    }

    pub(crate) fn runs_count(self) -> u32 {
        (self.0 & !(self.0 << 1)).count_ones()
    }

    /// Returns the runs of adjoining pages, ascending, each as its first page and its length.
    pub(crate) fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let from = rest.trailing_zeros();
            let count = rest.checked_shr(from)?.trailing_ones();
            rest &= !Pages::range(from, count).0;
            Some((from, count))
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_have_the_pages_that_they_touch() {
        let table: &[(usize, usize, u64)] = &[
            (0, 0, 0),
            (0, 1, 1),
            (0, 4096, 1),
            (0, 4097, 0b11),
            (4095, 4097, 0b11),
            (4096, 8192, 0b10),
            (5000, 5001, 0b10),
            (0, 64 * 4096, u64::MAX),
            (63 * 4096, 64 * 4096, 1 << 63),
        ];
        for (from, end, expected) in table {
            assert_eq!(Pages::of_bytes(*from, *end).0, *expected, "bytes {from} to {end}");
        }
    }

    proptest! {
        #[test]
        fn runs_are_maximal_and_have_all_its_pages(bits: u64) {
            let runs: Vec<(u32, u32)> = Pages(bits).runs().collect();
            let all = runs.iter().fold(0, |all, (from, count)| all | Pages::range(*from, *count).0);
            prop_assert_eq!(all, bits);
            prop_assert_eq!(runs.len(), Pages(bits).runs_count() as usize);
            for pair in runs.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 < pair[1].0, "they neither meet nor overlap");
            }
        }
    }
}
