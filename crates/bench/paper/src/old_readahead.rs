//! The readahead of the kernel that M1 was measured against (2.6.0-test, July 2003), as behaviour.
//!
//! This readahead works on pages, never on requests. It sees a request at a random place as a seek,
//! which shrinks the window by two pages, and each later page of the request as a stream, which
//! lets the window grow by two pages. So for each record of 64 KiB at a random place, it reads a
//! window of 120 KiB that begins with the record, and the 128 KiB behind that window. *Upfront*
//! readahead changes that (`crates/core/cache/src/readahead.rs`).
//!
//! Source: Linux mm/readahead.c at that time (behaviour); "Linux AIO Performance and Robustness for
//! Enterprise Workloads", *Impact of Readahead on AIO Reads*.

use core::ops::Range;

const MIN_PAGES: u64 = 4;

#[derive(Clone, Debug)]
pub(crate) struct OldReadahead {
    max_pages: u64,
    /// Length of the next window; `None` if seeks have shrunk the window to nothing.
    next: Option<u64>,
    /// The value of `next` before the last access.
    before: Option<u64>,
    last: Option<u64>,
    current: Range<u64>,
    ahead: Range<u64>,
}

impl OldReadahead {
    pub(crate) fn new(max_pages: u32) -> OldReadahead {
        let (current, ahead) = (0..0, 0..0);
        let (next, before, last) = (Some(0), Some(0), None);
        OldReadahead { max_pages: max_pages.into(), next, before, last, current, ahead }
    }

    /// Records that a reader comes to `page`. Returns the pages to read ahead, for which no request
    /// waits. For such pages, the caller then calls [`started`](OldReadahead::started), with `true`
    /// if some of them were missing.
    pub(crate) fn access(&mut self, page: u64) -> Option<Range<u64>> {
        self.before = self.next;
        let next = self.next?;
        if next == 0 && page == 0 {
            return Some(self.jump(page, self.max_pages / 2));
        }
        if self.last == Some(page) && next != 0 {
            return None;
        }
        self.last = Some(page);
        // The page after the window still belongs to the stream.
        let hit = (self.current.start..=self.current.end).contains(&page);
        let grown = if hit { Some(next + 2) } else { next.checked_sub(2) };
        let grown = grown.filter(|pages| *pages > 0).map(|pages| pages.min(self.max_pages));
        self.next = grown;
        let Some(next) = grown else {
            self.current.end = self.current.start;
            return None;
        };
        if self.current.contains(&page) {
            return self.look_ahead(next);
        }
        if !self.ahead.is_empty() && page == self.ahead.start {
            self.current = std::mem::replace(&mut self.ahead, 0..0);
            return None;
        }
        Some(self.jump(page, next))
    }

    fn jump(&mut self, page: u64, pages: u64) -> Range<u64> {
        self.next = Some(pages);
        self.current = page..page + pages;
        self.ahead = 0..0;
        self.current.clone()
    }

    fn look_ahead(&mut self, pages: u64) -> Option<Range<u64>> {
        if !self.ahead.is_empty() {
            return None;
        }
        self.ahead = self.current.end..self.current.end + pages;
        Some(self.ahead.clone())
    }

    /// Shrinks the window if no page of the last range was missing.
    pub(crate) fn started(&mut self, some: bool) {
        if some {
            return;
        }
        self.next = self.before.filter(|before| *before > 1).map(|before| before - 1);
        match self.next {
            Some(next) if !self.ahead.is_empty() => self.ahead.end = self.ahead.start + next,
            Some(_) => {}
            None => self.current.end = self.current.start,
        }
    }

    /// Records that the reader reads a missing page alone; the next window grows.
    pub(crate) fn miss(&mut self) {
        let pages = self.next.map_or(MIN_PAGES, |next| next + MIN_PAGES);
        self.next = Some(pages.min(self.max_pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(readahead: &mut OldReadahead, pages: Range<u64>) -> Vec<Range<u64>> {
        let mut read: Vec<Range<u64>> = Vec::new();
        for page in pages {
            read.extend(readahead.access(page));
            if !read.iter().any(|range| range.contains(&page)) {
                readahead.miss();
            }
        }
        read
    }

    #[test]
    fn a_file_read_from_its_begin_has_two_windows_in_flight() {
        let mut readahead = OldReadahead::new(32);
        assert_eq!(read(&mut readahead, 0..2), [0..16, 16..34]);
        let windows = read(&mut readahead, 2..200);
        assert!(windows.windows(2).all(|pair| pair[0].end == pair[1].start), "{windows:?}");
        assert_eq!(windows.last().unwrap().clone().count(), 32);
    }

    #[test]
    fn records_at_random_places_have_a_window_in_front_and_one_ahead() {
        let mut readahead = OldReadahead::new(32);
        read(&mut readahead, 1000..1016);
        read(&mut readahead, 5000..5016);
        assert_eq!(read(&mut readahead, 9000..9016), [9000..9030, 9030..9062]);
    }

    #[test]
    fn single_pages_at_random_places_end_readahead() {
        let mut readahead = OldReadahead::new(32);
        read(&mut readahead, 0..1);
        let far = (1..40).map(|n| n * 1000);
        assert_eq!(far.filter_map(|page| readahead.access(page)).count(), 7);
        assert_eq!(readahead.next, None);
        readahead.miss();
        assert_eq!(readahead.next, Some(4));
    }

    #[test]
    fn windows_of_what_is_cached_shrink() {
        let mut readahead = OldReadahead::new(32);
        read(&mut readahead, 0..20);
        let next = readahead.next.unwrap();
        assert!(readahead.access(3000).is_some());
        readahead.started(true);
        assert_eq!(readahead.next, Some(next - 2));
        assert!(readahead.access(5000).is_some());
        readahead.started(false);
        assert_eq!(readahead.next, Some(next - 3));
        readahead.before = Some(1);
        readahead.started(false);
        assert_eq!(readahead.next, None);
    }
}
