//! Counts the changes of an image's pages: those in flight, and all so far. Data that the server
//! reads during a change may be from before or after the change.

use core::ops::Range;

/// The number of counters. Pages this far apart share a counter, so a change of one page keeps the
/// others out of the cache as well.
const COUNTERS: u64 = 4096;

#[derive(Debug)]
pub(super) struct Changes {
    counters: Box<[Counter]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    begun: u64,
    in_flight: u32,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes { counters: vec![Counter::default(); COUNTERS as usize].into() }
    }

    /// Returns `None` while a change of one of `pages`, or with the same counter, is in flight.
    pub(super) fn mark(&self, pages: &Range<u64>) -> Option<u64> {
        let is_changing = places(pages).any(|place| self.counters[place].in_flight > 0);
        (!is_changing).then(|| self.begun(pages))
    }

    /// Returns a number that grows whenever a change of one of `pages` begins, or of a page that
    /// shares a counter.
    pub(super) fn begun(&self, pages: &Range<u64>) -> u64 {
        places(pages).map(|place| self.counters[place].begun).sum()
    }

    pub(super) fn begin(&mut self, pages: &Range<u64>) {
        for place in places(pages) {
            self.counters[place].begun += 1;
            self.counters[place].in_flight += 1;
        }
    }

    pub(super) fn end(&mut self, pages: &Range<u64>) {
        places(pages).for_each(|place| self.counters[place].in_flight -= 1);
    }
}

fn places(pages: &Range<u64>) -> impl Iterator<Item = usize> {
    let end = pages.end.min(pages.start.saturating_add(COUNTERS));
    (pages.start..end).map(|number| (number % COUNTERS) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_good_until_a_change_begins() {
        let mut changes = Changes::new();
        let mark = changes.mark(&(3..6));
        changes.begin(&(6..9));
        assert_eq!(mark, Some(changes.begun(&(3..6))), "beside it");
        assert_eq!(changes.mark(&(8..10)), None, "in flight");
        changes.begin(&(5..6));
        changes.end(&(5..6));
        assert_ne!(mark, Some(changes.begun(&(3..6))), "it has ended, and was one");
        changes.end(&(6..9));
        assert!(changes.mark(&(0..10)).is_some());
    }

    #[test]
    fn a_change_of_very_many_pages_changes_all_counters() {
        let mut changes = Changes::new();
        let mark = changes.mark(&(7..8));
        changes.begin(&(100..u64::MAX));
        assert_eq!(changes.mark(&(7..8)), None);
        changes.end(&(100..u64::MAX));
        assert_ne!(mark, changes.mark(&(7..8)));
    }
}
