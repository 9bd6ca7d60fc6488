//! Readahead: decides which pages of an open file to read next, without I/O.
//!
//! ```text
//!          the stream's window                   the window its marker opened
//!   ──────┬───────────────────────────────┬───────────────────────────────┬────
//!         start      ^next                end = start        marker = start
//!                    end of the last request that came here
//! ```
//!
//! A read calls this module in two cases only, so that a cached hit costs nothing:
//!
//! * [`Readahead::miss`]: a page that it needs is neither in the cache nor being read;
//! * [`Readahead::marker`]: it has reached the marked page.
//!
//! **Upfront.** The first miss of a request announces all pages of the request, up to the maximum
//! window, so later iterations normally announce nothing. If a request announced only the current
//! window, the window would shrink, because requests at random places look like seeks.
//!
//! **Streams.** A request that begins where an earlier request ended makes a stream; so does a
//! request at page 0 whose submitter waits. Each stream has its own window, so that a program can
//! read several streams in turns through one descriptor. Requests at random places cause no
//! readahead, except after [`Advice::Sequential`].
//!
//! Source: upfront readahead, "Linux AIO Performance and Robustness for Enterprise Workloads"
//! (Bhattacharya et al., slides); markers and the ramp, Linux mm/readahead.c (behaviour).

use core::ops::Range;

/// The limits on a window are never below this.
const WINDOW_PAGES_MIN: u64 = 4;
/// A stream's window of at least twice this length ends on a multiple of it, or at the end of the
/// file. So the next window begins with a whole 64 KiB folio.
const FOLIO_PAGES: u64 = 16;
const STREAMS: usize = 8;
const CANDIDATES: usize = 16;
const NOWHERE: u64 = u64::MAX;

/// The application's advice about its access, as in posix_fadvise(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Requests that belong to a stream get readahead.
    #[default]
    Normal,
    /// Only the requested pages are read.
    Random,
    /// A request that continues no stream begins a stream, and windows can be twice as long.
    Sequential,
}

/// The limits on a window at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Length of the file in pages, rounded up.
    pub file_pages: u64,
    /// Pages that the cache would give to readahead now.
    pub room_pages: u64,
}

/// The readahead state of one read, kept across its iterations.
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

    /// Returns the pages that the request reads.
    pub fn pages(&self) -> Range<u64> {
        self.pages.clone()
    }
}

/// Pages that the caller starts to read, unless the cache has them, and a page to mark.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Plan {
    /// The pages to read, none of them beyond the end of the file. May be empty.
    pub read: Range<u64>,
    /// The page whose folio the caller marks.
    pub marker: Option<u64>,
}

impl Plan {
    /// A plan without pages and without a mark.
    pub const NONE: Plan = Plan { read: 0..0, marker: None };
}

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
/// Lengths are in pages; page numbers are below 2^52. The owner serializes the calls. No call
/// blocks or allocates.
#[derive(Clone, Debug)]
pub struct Readahead {
    advice: Advice,
    pages_max: u64,
    /// The limit of windows. It shrinks when a read misses pages of an earlier plan, and grows with
    /// later requests.
    limit: u64,
    streams: [Option<Stream>; STREAMS],
    /// The ends of the last requests that belonged to no stream, in a ring.
    candidates: [u64; CANDIDATES],
    candidate_next: usize,
    clock: u64,
}

impl Readahead {
    /// Makes the state of a file just opened. Windows have at most `pages_max` pages (4 if it is
    /// less), and twice as many after [`Advice::Sequential`].
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

    /// Returns the length of the longest window that the advice allows.
    pub fn pages_max(&self) -> u64 {
        if self.advice == Advice::Sequential { 2 * self.pages_max } else { self.pages_max }
    }

    /// Returns the plan for a request whose page `index` is neither in the cache nor being read.
    /// The plan contains `index`, if the request and the file have this page.
    pub fn miss(&mut self, request: &mut Request, index: u64, bounds: Bounds) -> Plan {
        if index >= bounds.file_pages || !request.pages.contains(&index) {
            return Plan::NONE;
        }
        let plan = self.plan_miss(request, index, bounds);
        request.announced = request.announced.max(plan.read.end.min(request.pages.end));
        plan
    }

    /// Returns the plan for a request that reaches the marked page `index`.
    pub fn marker(&mut self, request: &mut Request, index: u64, bounds: Bounds) -> Plan {
        let stream = self.streams.iter().position(|slot| slot.is_some_and(|s| s.marker == index));
        let more = request.announced < request.pages.end && index < request.announced;
        let plan = match stream {
            Some(slot) if self.advice != Advice::Random => self.advance(slot, request, bounds),
            _ if more => self.request_only(request, request.announced, bounds),
            // Another request took the slot of the stream, or the mark is of another open. A new
            // stream begins here.
            None if self.advice != Advice::Random && index + 1 < bounds.file_pages => {
                self.begin(request, request.announced.max(index + 1), bounds)
            }
            _ => Plan::NONE,
        };
        request.announced = request.announced.max(plan.read.end.min(request.pages.end));
        plan
    }

    /// Returns the marker page of a stream, if one lies in `pages`.
    pub fn mark_in(&self, pages: Range<u64>) -> Option<u64> {
        let marks = self.streams.iter().flatten().map(|stream| stream.marker);
        marks.into_iter().find(|mark| pages.contains(mark))
    }

    /// Returns the plan for pages that the application needs soon (WILLNEED), at most a window of
    /// them.
    pub fn will_need(&self, pages: Range<u64>, bounds: Bounds) -> Plan {
        let end =
            pages.end.min(bounds.file_pages).min(pages.start.saturating_add(self.cap(bounds)));
        if pages.start >= end {
            return Plan::NONE;
        }
        Plan { read: pages.start..end, marker: None }
    }

    /// Records that these pages leave the cache on purpose (DONTNEED). If they reach the end of a
    /// stream's window, a later miss of them does not shorten the window.
    pub fn forget(&mut self, pages: Range<u64>) {
        for stream in self.streams.iter_mut().flatten() {
            // These pages do not reach the end of the window, or begin behind it.
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

    /// Announces the pages of a request from page `start` on, without readahead. If these pages are
    /// more than a window, the request announces more of them in the middle of the window.
    fn request_only(&self, request: &Request, start: u64, bounds: Bounds) -> Plan {
        let wanted = request.pages.end.min(bounds.file_pages);
        let end = wanted.min(start.saturating_add(self.cap(bounds)));
        if start >= end {
            return Plan::NONE;
        }
        Plan { read: start..end, marker: (end < wanted).then_some(start.midpoint(end)) }
    }

    /// Returns the slot of a stream that a request continues: it begins where the stream's last
    /// request ended (both may touch the same page), or `index` is the page after the stream's
    /// window, or an evicted page in the unread part of the window.
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

    fn begin(&mut self, request: &Request, start: u64, bounds: Bounds) -> Plan {
        let age = |slot: &Option<Stream>| slot.map_or(0, |stream| stream.used);
        let slot = (0..STREAMS).min_by_key(|slot| age(&self.streams[*slot])).unwrap_or(0);
        let size = first_size(request, self.pages_max());
        self.open(slot, request, start..start + size, bounds)
    }

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

    fn open(&mut self, slot: usize, request: &Request, window: Range<u64>, at: Bounds) -> Plan {
        let (start, wanted) = (window.start, request.pages.end.min(at.file_pages));
        if start >= at.file_pages {
            return Plan::NONE;
        }
        let size = (window.end - start).max(wanted.saturating_sub(start));
        let end = round(start, start + size.min(self.cap(at))).min(at.file_pages);
        let marker = match wanted {
            _ if end >= at.file_pages => NOWHERE,
            // The request takes the whole window: the next window is due at the first page.
            wanted if wanted == end => start,
            wanted if wanted > end => start.midpoint(end),
            wanted => wanted.max(start),
        };
        self.set(slot, Stream { start, end, next: request.pages.end, marker, used: 0 })
    }

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

/// Returns `true` if a request begins at page `end`, or at the page before it, in which the last
/// request may have ended.
fn follows(request: &Request, end: u64) -> bool {
    request.pages.start == end || request.pages.start + 1 == end
}

fn first_size(request: &Request, pages_max: u64) -> u64 {
    let size = (request.pages.end - request.pages.start).max(1).next_power_of_two();
    match size {
        _ if size <= pages_max / 32 => size * 4,
        _ if size <= pages_max / 4 => size * 2,
        _ => pages_max,
    }
}

fn next_size(size: u64, pages_max: u64) -> u64 {
    let factor = if size < pages_max / 16 { 4 } else { 2 };
    (size * factor).min(pages_max)
}

/// Moves the end of a window of 32 or more pages down to a multiple of 16.
fn round(start: u64, end: u64) -> u64 {
    if end - start >= 2 * FOLIO_PAGES { end - end % FOLIO_PAGES } else { end }
}
