//! Readahead: the state of one open file, and the decision what to read next. No I/O happens here.
//!
//! ```text
//!          the stream's window                   the window its marker opened
//!   ──────┬───────────────────────────────┬───────────────────────────────┬────
//!         start      ^next                end = start        marker = start
//!                    end of the last request that came here
//! ```
//!
//! An operation calls this module in two cases only, so that a cached hit costs nothing:
//!
//! * [`Readahead::miss`]: a page that it needs is neither in the cache nor being read;
//! * [`Readahead::marker`]: it has reached the marked page. The operation clears the mark before it
//!   checks whether the page is up to date.
//!
//! **Upfront.** The first miss of a request announces all of its pages, up to the maximum window. A
//! later iteration finds them in the cache, or waits for them, and so announces nothing. Otherwise
//! a request would announce the current window only; the window would shrink, because requests at
//! random places look like seeks, and after three requests the file would be read page by page.
//!
//! **Streams.** A request that begins where an earlier one ended makes a stream. Each stream has
//! its own window, so that several streams can be read in turns through one descriptor. For
//! requests at random places only the requested pages are read.
//!
//! Source: upfront readahead, "Linux AIO Performance and Robustness for Enterprise Workloads"
//! (Bhattacharya et al., slides); markers and the ramp, Linux mm/readahead.c (behaviour).

use core::ops::Range;

/// The shortest window, however little memory there is.
const WINDOW_PAGES_MIN: u64 = 4;
/// Windows from twice this length on end on a multiple of it: whole 64 KiB folios.
const FOLIO_PAGES: u64 = 16;
const STREAMS: usize = 8;
const CANDIDATES: usize = 16;
const NOWHERE: u64 = u64::MAX;

/// The application's advice about its access, as in posix_fadvise(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Streams are detected.
    #[default]
    Normal,
    /// Only the requested pages are read.
    Random,
    /// Any request begins a stream; windows are twice as long.
    Sequential,
}

/// The bounds of a window at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Length of the file in pages; a last page that is not full counts, too.
    pub file_pages: u64,
    /// How many pages the cache would give to readahead now.
    pub room_pages: u64,
}

/// The readahead state of one operation; it lives in the operation, across its iterations.
#[derive(Clone, Debug)]
pub struct Request {
    pages: Range<u64>,
    asynchronous: bool,
    announced: u64,
}

impl Request {
    /// Describes a read of `pages`. `asynchronous`: the submitter does not wait for it.
    pub fn new(pages: Range<u64>, asynchronous: bool) -> Request {
        let announced = pages.start;
        Request { pages, asynchronous, announced }
    }

    /// Returns the pages it reads.
    pub fn pages(&self) -> Range<u64> {
        self.pages.clone()
    }
}

/// A plan: start reading the pages of the range that are not in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Plan {
    /// Pages to read; may be empty. Never beyond the end of the file.
    pub read: Range<u64>,
    /// The page to mark; the mark is put on the folio that contains it.
    pub marker: Option<u64>,
}

impl Plan {
    /// Nothing to do.
    pub const NONE: Plan = Plan { read: 0..0, marker: None };
}

/// Part of a file that is read in order.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: u64,
    end: u64,
    next: u64,
    marker: u64,
    used: u64,
}

/// The readahead state of one open file.
///
/// Counts in pages; page numbers are below 2^52. The owner serializes the calls; none of them
/// blocks or allocates.
#[derive(Clone, Debug)]
pub struct Readahead {
    advice: Advice,
    pages_max: u64,
    /// The limit of windows, in pages: shrinks when pages are evicted before they were used, and
    /// recovers while none is.
    limit: u64,
    streams: [Option<Stream>; STREAMS],
    /// The ends of requests that belong to no stream, in a ring.
    candidates: [u64; CANDIDATES],
    candidate_next: usize,
    clock: u64,
}

impl Readahead {
    /// Makes the state of a file just opened; no window is longer than `pages_max`.
    pub fn new(pages_max: u32) -> Readahead {
        let pages_max = u64::from(pages_max).max(WINDOW_PAGES_MIN);
        Readahead {
            advice: Advice::Normal,
            pages_max,
            limit: 2 * pages_max,
            streams: [None; STREAMS],
            candidates: [NOWHERE; CANDIDATES],
            candidate_next: 0,
            clock: 0,
        }
    }

    /// Sets the advice for later calls.
    pub fn advise(&mut self, advice: Advice) {
        self.advice = advice;
    }

    /// Returns the longest window there can be now.
    pub fn pages_max(&self) -> u64 {
        if self.advice == Advice::Sequential { 2 * self.pages_max } else { self.pages_max }
    }

    /// Returns the plan for a request whose page `index` is absent and not being read. The plan
    /// contains `index`, unless that lies behind the end of the file.
    pub fn miss(&mut self, request: &mut Request, index: u64, bounds: Bounds) -> Plan {
        if index >= bounds.file_pages || !request.pages.contains(&index) {
            return Plan::NONE;
        }
        let plan = self.plan_miss(request, index, bounds);
        request.announced = request.announced.max(plan.read.end.min(request.pages.end));
        plan
    }

    /// Returns the plan for an operation that reaches the marked page `index`.
    pub fn marker(&mut self, request: &mut Request, index: u64, bounds: Bounds) -> Plan {
        let stream = self.streams.iter().position(|slot| slot.is_some_and(|s| s.marker == index));
        let more = request.announced < request.pages.end && index < request.announced;
        let plan = match stream {
            Some(slot) if self.advice != Advice::Random => self.advance(slot, request, bounds),
            _ if more => self.request_only(request, request.announced, bounds),
            // The mark belongs to a stream whose slot was reused: a new stream begins here.
            None if self.advice != Advice::Random && index + 1 < bounds.file_pages => {
                self.begin(request, request.announced.max(index + 1), bounds)
            }
            _ => Plan::NONE,
        };
        request.announced = request.announced.max(plan.read.end.min(request.pages.end));
        plan
    }

    /// Returns the marked page of a stream that lies in `pages`, the pages of a marked folio.
    pub fn mark_in(&self, pages: Range<u64>) -> Option<u64> {
        let marks = self.streams.iter().flatten().map(|stream| stream.marker);
        marks.into_iter().find(|mark| pages.contains(mark))
    }

    /// Returns the plan for pages that the application needs soon (WILLNEED). One plan is at most a
    /// window: a caller that wants more calls again for the following pages.
    pub fn will_need(&self, pages: Range<u64>, bounds: Bounds) -> Plan {
        let end =
            pages.end.min(bounds.file_pages).min(pages.start.saturating_add(self.cap(bounds)));
        if pages.start >= end {
            return Plan::NONE;
        }
        Plan { read: pages.start..end, marker: None }
    }

    /// Records that these pages leave the cache on purpose (DONTNEED, truncate): a later miss of
    /// them does not shorten the window.
    pub fn forget(&mut self, pages: Range<u64>) {
        for stream in self.streams.iter_mut().flatten() {
            // If the end of the window stays in the cache, the stream does not change.
            if pages.end < stream.end || pages.start >= stream.end {
                continue;
            }
            stream.end = pages.start.max(stream.next.min(stream.end));
            stream.start = stream.start.min(stream.end);
            stream.marker = if stream.marker < stream.end { stream.marker } else { NOWHERE };
        }
    }

    fn plan_miss(&mut self, request: &Request, index: u64, bounds: Bounds) -> Plan {
        if self.advice == Advice::Random {
            return self.request_only(request, index, bounds);
        }
        if let Some(slot) = self.stream_of(request, index) {
            return self.go_on(slot, request, index, bounds);
        }
        let first = request.announced == request.pages.start;
        if index < request.announced {
            self.shrink();
        }
        if !first {
            return self.request_only(request, index, bounds);
        }
        let from_the_start = !request.asynchronous && request.pages.start == 0;
        let told = self.advice == Advice::Sequential;
        if self.take_candidate(request) || from_the_start || told {
            return self.begin(request, index, bounds);
        }
        self.grow();
        self.candidates[self.candidate_next] = request.pages.end;
        self.candidate_next = (self.candidate_next + 1) % CANDIDATES;
        self.request_only(request, index, bounds)
    }

    /// Announces the pages that a request lacks, without readahead. Pages that do not fit in a
    /// window follow when the operation comes to the middle of it.
    fn request_only(&self, request: &Request, start: u64, bounds: Bounds) -> Plan {
        let wanted = request.pages.end.min(bounds.file_pages);
        let end = wanted.min(start.saturating_add(self.cap(bounds)));
        if start >= end {
            return Plan::NONE;
        }
        Plan { read: start..end, marker: (end < wanted).then_some(start.midpoint(end)) }
    }

    /// Finds the stream that a request continues: the request begins where the stream's last
    /// request ended (both may touch the same page), or `index` is the end of the window, or
    /// `index` is an unread page of the window, which was evicted.
    fn stream_of(&self, request: &Request, index: u64) -> Option<usize> {
        self.streams.iter().position(|slot| {
            slot.is_some_and(|stream| {
                let unread = stream.start.max(stream.next.saturating_sub(1))..stream.end;
                follows(request, stream.next) || index == stream.end || unread.contains(&index)
            })
        })
    }

    fn take_candidate(&mut self, request: &Request) -> bool {
        let found = self.candidates.iter_mut().find(|end| follows(request, **end));
        found.map(|end| *end = NOWHERE).is_some()
    }

    /// Makes a stream, in the slot of the stream that was not used for the longest time.
    fn begin(&mut self, request: &Request, start: u64, bounds: Bounds) -> Plan {
        let age = |slot: &Option<Stream>| slot.map_or(0, |stream| stream.used);
        let slot = (0..STREAMS).min_by_key(|slot| age(&self.streams[*slot])).unwrap_or(0);
        let size = first_size(request, self.pages_max());
        self.open(slot, request, start..start + size, bounds)
    }

    /// Continues a stream at a missing page.
    fn go_on(&mut self, slot: usize, request: &Request, index: u64, bounds: Bounds) -> Plan {
        let Some(stream) = self.streams[slot] else { return Plan::NONE };
        let len = stream.end - stream.start;
        let lost = (stream.start..stream.end).contains(&index);
        let size = if lost {
            self.shrink();
            len / 2
        } else if len == 0 {
            first_size(request, self.pages_max())
        } else {
            next_size(len, self.pages_max())
        };
        self.open(slot, request, index..index + size, bounds)
    }

    /// Opens a window that begins with missing pages of the request.
    fn open(&mut self, slot: usize, request: &Request, window: Range<u64>, at: Bounds) -> Plan {
        let (start, wanted) = (window.start, request.pages.end.min(at.file_pages));
        if start >= at.file_pages {
            // The file has become shorter than the announced pages.
            return Plan::NONE;
        }
        let size = (window.end - start).max(wanted.saturating_sub(start));
        let end = round(start, start + size.min(self.cap(at))).min(at.file_pages);
        let marker = match wanted {
            _ if end >= at.file_pages => NOWHERE,
            // The request takes the whole window: the next window is due at once.
            wanted if wanted == end => start,
            wanted if wanted > end => start.midpoint(end),
            wanted => wanted.max(start),
        };
        self.set(slot, Stream { start, end, next: request.pages.end, marker, used: 0 })
    }

    /// Opens the window after the one whose marker was reached.
    fn advance(&mut self, slot: usize, request: &Request, bounds: Bounds) -> Plan {
        let Some(old) = self.streams[slot] else { return Plan::NONE };
        let next = request.pages.end;
        let size = next_size(old.end - old.start, self.pages_max()).min(self.cap(bounds));
        let start = old.end.max(request.announced);
        let end = round(start, start + size).min(bounds.file_pages);
        if start >= end {
            self.streams[slot] = Some(Stream { next, marker: NOWHERE, ..old });
            return Plan::NONE;
        }
        self.grow();
        let marker = if end < bounds.file_pages { start } else { NOWHERE };
        self.set(slot, Stream { start, end, next, marker, used: 0 })
    }

    fn set(&mut self, slot: usize, stream: Stream) -> Plan {
        self.clock += 1;
        self.streams[slot] = Some(Stream { used: self.clock, ..stream });
        let marker = (stream.marker != NOWHERE).then_some(stream.marker);
        Plan { read: stream.start..stream.end, marker }
    }

    fn cap(&self, bounds: Bounds) -> u64 {
        self.pages_max().min(self.limit).min(bounds.room_pages.max(WINDOW_PAGES_MIN))
    }

    fn shrink(&mut self) {
        self.limit = (self.limit.min(self.pages_max()) / 2).max(WINDOW_PAGES_MIN);
    }

    fn grow(&mut self) {
        self.limit = (self.limit + WINDOW_PAGES_MIN).min(2 * self.pages_max);
    }
}

/// Returns `true` if a request begins at page `end`, or at the page before it: the last request may
/// have ended within that page.
fn follows(request: &Request, end: u64) -> bool {
    request.pages.start == end || request.pages.start + 1 == end
}

/// Returns the length of a stream's first window.
fn first_size(request: &Request, pages_max: u64) -> u64 {
    let size = (request.pages.end - request.pages.start).max(1).next_power_of_two();
    match size {
        _ if size <= pages_max / 32 => size * 4,
        _ if size <= pages_max / 4 => size * 2,
        _ => pages_max,
    }
}

/// Returns the length of the window that follows one of `size` pages.
fn next_size(size: u64, pages_max: u64) -> u64 {
    let factor = if size < pages_max / 16 { 4 } else { 2 };
    (size * factor).min(pages_max)
}

/// Ends a long window on the border of a folio.
fn round(start: u64, end: u64) -> u64 {
    if end - start >= 2 * FOLIO_PAGES { end - end % FOLIO_PAGES } else { end }
}
